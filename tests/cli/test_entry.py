"""Ctrl-C before a command has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("begin", ["main", "plugin", "complete_plugin"])
def test_ctrl_c_while_it_starts_ends_it_without_a_word(tmp_path: Path, begin: str) -> None:
    (tmp_path / "click.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")

    ended = subprocess.run(
        [sys.executable, "-P", "-c", f"from tarragon.cli.entry import {begin}; {begin}()", "version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")
