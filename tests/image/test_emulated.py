"""The image for the other architecture, run by an emulator: it has what it needs, and brings a job to its end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tarragon import __version__
from tests.image.conftest import ARCHITECTURE
from tests.image.container import IMPORT_ALL, Container
from tests.image.machine import machines
from tests.image.test_from_nothing import IMAGE, JOB, ByKubectl, rolls_out
from tests.real.site import a_site
from tools.controlplane import ControlPlane
from tools.image.build import Request, build, read_origin
from tools.image.errors import DownloadError
from tools.image.layout import unpack_image

pytestmark = [pytest.mark.image, pytest.mark.soak, pytest.mark.timeout(1800)]

OTHER, EMULATOR = ("arm64", "qemu-aarch64-static") if ARCHITECTURE == "amd64" else ("amd64", "qemu-x86_64-static")
IN_IMAGE = "/emulator"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Container:
    program = shutil.which(EMULATOR)
    if program is None:
        pytest.skip(f"{EMULATOR} is not on PATH; Debian's package is qemu-user-static")
    try:
        built = build(Request(output=tmp_path_factory.mktemp("built"), architectures=[OTHER]), read_origin())
    except DownloadError as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("unpacked")
    root.chmod(0o755)
    unpack_image(built.layout, built.images[OTHER].manifest, root)
    shutil.copy(program, root / IN_IMAGE.lstrip("/"))
    container = Container.of(built, OTHER, root)
    # The kernel can start neither programs of the other architecture nor scripts with such an interpreter.
    container.config["Entrypoint"] = [IN_IMAGE, "/usr/bin/python3", *container.config["Entrypoint"]]
    return container


def test_the_other_architectures_image_has_every_library_and_kubectl(emulated: Container) -> None:
    emulated.run([IN_IMAGE, "/usr/bin/python3", "-c", IMPORT_ALL])
    version = emulated.run([*emulated.config["Entrypoint"], "operator", "--version"])
    kubectl = emulated.run([IN_IMAGE, "/usr/local/bin/kubectl", "version", "--client"])

    assert version == f"tarragon {__version__}\n"
    assert "Client Version: v1.36.0" in kubectl


@pytest.mark.real
@pytest.mark.kubectl
def test_the_other_architectures_operator_brings_a_job_to_its_end(
    emulated: Container, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    with a_site(own_control_plane, tmp_path) as site, machines(site, emulated, IMAGE, 2):
        site.node()
        ByKubectl(tmp_path).install(site, "1.0")
        rolls_out(site)
        site.kubectl("create", "-f", "-", given=JOB % ("hello", 0.5))
        site.wait("tfjob", "hello", "condition=Succeeded")
