from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.programs import VERSIONS, Container, pythons


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.fixture(params=VERSIONS)
def any_container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    """A container for each Python version that images have and that is installed on this machine."""
    if request.param not in pythons():
        pytest.skip(f"Python {request.param} is not installed")
    return Container(tmp_path, pythons()[request.param])
