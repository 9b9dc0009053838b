from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.user import User, ends_all


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Whatever the test has started is ended by `tarragon down`, and nothing of it is left."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = User(folder=folder, home=tmp_path / "home")
    yield made
    ends_all(made)
