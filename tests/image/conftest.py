from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.image.container import Container
from tools.image.build import Request, Result, build, read_origin
from tools.image.errors import DownloadError
from tools.image.layout import unpack_image

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The image for this machine."""
    try:
        return build(Request(output=tmp_path_factory.mktemp("built"), architectures=[ARCHITECTURE]), read_origin())
    except DownloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def unpacked(built: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image."""
    root = tmp_path_factory.mktemp("unpacked")
    root.chmod(0o755)
    unpack_image(built.layout, built.images[ARCHITECTURE].manifest, root)
    return root


@pytest.fixture
def container(built: Result, unpacked: Path) -> Container:
    """A container of the image, as the Deployment wants it: unprivileged, and in a file system that is read-only."""
    return Container.of(built, ARCHITECTURE, unpacked)
