from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.programs import VERSIONS, Container, pythons


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.fixture(params=VERSIONS)
def any_container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    """One of each Python that images have, as far as this machine has them."""
    if request.param not in pythons():
        pytest.skip(f"there is no Python {request.param} here")
    return Container(tmp_path, pythons()[request.param])
