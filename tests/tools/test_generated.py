from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT


@pytest.mark.parametrize(
    "tool",
    [
        "make_chart.py",
        "make_commands.py",
        "make_crds.py",
        "make_deploy.py",
        "make_monitoring.py",
        "make_reference.py",
    ],
)
def test_generated_files_are_up_to_date(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, f"tools/{tool}", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
