from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT


@pytest.mark.parametrize("tool", ["make_commands.py", "make_crds.py", "make_deploy.py", "make_reference.py"])
def test_what_follows_from_the_code_does(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, f"tools/{tool}", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
