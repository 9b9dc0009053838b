"""The operator's image: it is built, built again and unpacked, and what is in it runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarragon import __version__
from tarragon.frameworks.mpi.objects.pod_wiring import KUBECTL_IN_IMAGE
from tarragon.frameworks.plugin import FileDelivery
from tarragon.plan.objects.deliveries import build_delivery
from tarragon.plan.objects.settings import OperatorSettings
from tests.conftest import ROOT
from tests.image.conftest import ARCHITECTURE
from tests.image.container import IMPORT_ALL, Container, read_blob
from tools.image.build import Result, read_origin
from tools.image.staging import SITE

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(900)]


def files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.soak  # it takes a minute of two cores
def test_a_second_build_elsewhere_by_somebody_else_has_the_same_digest(built: Result, tmp_path: Path) -> None:
    command = ["build", "--architecture", ARCHITECTURE, "--output", str(tmp_path)]
    environment = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", "HOME": str(tmp_path)}
    kept = {"UV_CACHE_DIR": "uv", "GOCACHE": "go-build"}
    for name, folder in kept.items():
        environment.setdefault(name, str(Path.home() / ".cache" / folder))
    environment.setdefault("GOPATH", str(Path.home() / "go"))

    subprocess.run(
        [sys.executable, "-m", "tools.image", *command], env=environment, cwd=ROOT, umask=0o077, check=True, text=True
    )

    assert (tmp_path / "image" / "index.json").read_bytes() == (built.layout / "index.json").read_bytes()


def test_every_blob_has_its_digest_and_every_archive_its_layers(built: Result) -> None:
    blobs = built.layout / "blobs" / "sha256"
    (archive,) = built.archives

    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in blobs.iterdir())
    with tarfile.open(archive) as packed:
        content: Any = packed.extractfile("manifest.json")
        (docker,) = json.load(content)
        assert docker["RepoTags"] == [f"tarragon:{__version__}"]
        for name in (docker["Config"], *docker["Layers"]):
            blob: Any = packed.extractfile(name)
            assert blob.read() == (built.layout / name).read_bytes()


def test_the_image_says_what_it_is_and_when_it_was_committed(built: Result, container: Container) -> None:
    labels, origin = container.config["Labels"], read_origin()

    assert container.config["User"] == "65532:65532"
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"] == origin.revision
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    manifest = read_blob(built.layout / "blobs" / "sha256", built.images[ARCHITECTURE].manifest["digest"])
    assert manifest["annotations"]["org.opencontainers.image.created"] == origin.created


def test_the_bill_of_materials_lists_all_packages_and_refers_to_the_image(built: Result, unpacked: Path) -> None:
    sbom = json.loads((unpacked / "usr/share/doc/tarragon/sbom.spdx.json").read_bytes())
    names = {package["name"] for package in sbom["packages"]}
    debian = {path.name for path in (unpacked / "var/lib/dpkg/status.d").iterdir() if path.suffix != ".md5sums"}
    modules = {path.name.partition("-")[0] for path in (unpacked / SITE).glob("*.dist-info")}
    index = json.loads((built.layout / "index.json").read_bytes())
    referrer = read_blob(built.layout / "blobs" / "sha256", index["manifests"][1]["digest"])

    assert {"libc6", "python3.13-minimal"} <= debian <= names
    assert {normalized(name) for name in modules} <= {normalized(name) for name in names}
    assert {"tarragon", "kubectl", "stdlib", "k8s.io/client-go"} <= names
    assert len({package["SPDXID"] for package in sbom["packages"]}) == len(sbom["packages"])
    assert referrer["subject"]["digest"] == built.images[ARCHITECTURE].manifest["digest"]


def normalized(name: str) -> str:
    """As package indexes compare the names of Python packages."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_image_has_no_shell_and_nothing_that_its_user_may_change(unpacked: Path) -> None:
    programs = {path.name for path in files(unpacked) if path.stat().st_mode & stat.S_IXUSR and not is_module(path)}
    changeable = [
        path
        for path in unpacked.rglob("*")
        if not path.is_symlink() and (path.stat().st_uid or path.stat().st_gid or path.stat().st_mode & 0o6022)
    ]

    assert programs == {"python3.13", "kubectl", "tarragon"}
    assert changeable == [unpacked / "tmp"]


def is_module(path: Path) -> bool:
    """Libraries are executable, and so are some modules of Python's own library."""
    return ".so" in path.name or path.suffix == ".py"


def test_every_library_that_the_image_needs_is_in_it(container: Container) -> None:
    container.run(["python3", "-c", IMPORT_ALL])


def test_kubectl_is_static_and_is_delivered_without_a_shell(container: Container, tmp_path: Path) -> None:
    delivery = FileDelivery(source=KUBECTL_IN_IMAGE, target="/opt/kube/kubectl", container={})
    command: Any = build_delivery(delivery, OperatorSettings())["command"]
    tmp_path.chmod(0o777)

    container.run(command, {"/opt/kube": tmp_path})

    version = subprocess.run([tmp_path / "kubectl", "version", "--client"], capture_output=True, text=True, check=True)
    assert "Client Version: v1.36.0" in version.stdout
    assert b"ld-linux" not in (tmp_path / "kubectl").read_bytes()[:4096]


def test_the_operator_in_the_image_says_its_version(container: Container) -> None:
    assert container.run([*container.config["Entrypoint"], "operator", "--version"]) == f"tarragon {__version__}\n"
