"""`make test` relies on groups of pytest-xdist; a release that breaks them would only make the tests slower."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("large")
def test_large(number):
    pathlib.Path(f"{number} {os.environ['PYTEST_XDIST_WORKER']}").touch()
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_large.py").write_text(FILE)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:asyncio"],
        cwd=tmp_path,
        env=own,
        check=True,
        timeout=100,
    )

    ran = [path.name.split() for path in tmp_path.iterdir() if path.name[0].isdigit()]
    assert len(ran) == 8
    assert len({process for _, process in ran}) == 1
