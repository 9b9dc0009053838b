from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ANOTHER = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""


@pytest.mark.parametrize("command", ["operator", "node"])
def test_a_kubeconfig_that_is_named_in_front_of_the_command_is_the_one_that_counts(
    command: str, tmp_path: Path
) -> None:
    """The environment's may be an administrator's, of another cluster."""
    (tmp_path / "another").write_text(ANOTHER)
    named = str(tmp_path / "named")
    done = subprocess.run(
        [sys.executable, "-m", "tarragon", "--kubeconfig", named, command],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "another"), "TARRAGON_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert named in done.stderr
