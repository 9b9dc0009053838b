"""A chart with hooks and a test of its own, on a laptop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.charts import helm, items, kubectl
from tests.e2e.user import User

pytestmark = [pytest.mark.helm, pytest.mark.kubectl, pytest.mark.slow, pytest.mark.timeout(300)]

CHART = """\
apiVersion: v2
name: hooks
version: 0.1.0
"""
TEMPLATES = """\
apiVersion: v1
kind: Pod
metadata:
  name: before
  annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded}
spec:
  restartPolicy: Never
  containers: [{name: a, image: any, command: [touch, was-here], workingDir: %(folder)s}]
---
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  containers: [{name: a, image: any, command: [sh, -c, "test -e was-here && sleep 1000"], workingDir: %(folder)s}]
---
apiVersion: v1
kind: Pod
metadata:
  name: try
  annotations: {helm.sh/hook: test}
spec:
  restartPolicy: Never
  containers: [{name: a, image: any, command: [echo, it works]}]
"""


def chart(folder: Path) -> str:
    (folder / "chart" / "templates").mkdir(parents=True)
    (folder / "chart" / "Chart.yaml").write_text(CHART)
    (folder / "chart" / "templates" / "pods.yaml").write_text(TEMPLATES % {"folder": folder})
    return str(folder / "chart")


def test_a_hook_runs_before_the_rest_and_the_chart_s_own_test_is_told_with_its_log(user: User) -> None:
    serving = user.start("up")
    serving.until("ready")

    helm(user, "install", "it", chart(user.folder), "--wait", "--timeout", "60s")
    running = [pod["metadata"]["name"] for pod in items(user, "pods")]
    tested = helm(user, "test", "it", "--logs")
    helm(user, "uninstall", "it", "--wait")

    assert running == ["stays"]
    assert "Phase:          Succeeded" in tested
    assert "POD LOGS: try\nit works" in tested
    assert kubectl(user, "get", "pods", "-o", "name") == "pod/try\n"
    assert user("down").code == 0
    assert serving.ended().code == 0
