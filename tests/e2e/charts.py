"""What somebody with helm and kubectl types at an embedded cluster."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.conftest import helm_program
from tests.e2e.user import User


def helm(user: User, *words: str) -> str:
    return _called(user, str(helm_program()), *words)


def kubectl(user: User, *words: str, given: str = "") -> str:
    return _called(user, "kubectl", *words, given=given)


def items(user: User, kind: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(kubectl(user, "get", kind, "-o", "json"))["items"]
    return listed


def _called(user: User, *command: str, given: str = "") -> str:
    environment = {**os.environ, "HOME": str(user.folder), "KUBECONFIG": str(user.home / "kubeconfig")}
    done = subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
