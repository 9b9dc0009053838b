"""An unmodified kubectl finds in `tarragon up` what it knows from a cluster with a training operator."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.manifests import group, job, python
from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.kubectl, pytest.mark.slow, pytest.mark.timeout(300)]

# Worker 0 ends when it is told to; the others would go on for ever.
TALKS = (
    "import os, time; print('hello from', os.environ['HOSTNAME'], flush=True)\n"
    "while not os.path.exists('{folder}/go'): time.sleep(0.1)"
)


@dataclass(frozen=True, slots=True)
class Kubectl:
    environment: Mapping[str, str]
    folder: Path

    def __call__(self, *words: str) -> str:
        """What it prints. It must succeed."""
        done = subprocess.run(
            ["kubectl", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def rows(self, *words: str) -> list[list[str]]:
        return [line.split() for line in self(*words).splitlines()]

    def pods(self) -> dict[str, str]:
        """Their phases, by name."""
        listed = json.loads(self("get", "pods", "-o", "json"))
        return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in listed["items"]}


@pytest.fixture
def kubectl(user: User) -> Iterator[Kubectl]:
    """Of somebody who has typed `export KUBECONFIG=$(tarragon kubeconfig)` beside a `tarragon up`."""
    serving = user.start("up")
    serving.until("ready")
    kubeconfig = user("kubeconfig").out.strip()
    yield Kubectl({**os.environ, "HOME": str(user.folder), "KUBECONFIG": kubeconfig}, user.folder)
    assert user("down").code == 0
    assert serving.ended().code == 0


def talking(user: User) -> str:
    container = python(TALKS.format(folder=user.folder))
    return user.file("job.json", job("talk", PS=group(container), Worker=group(container, replicas=2)))


def state(kubectl: Kubectl) -> str:
    head, row = kubectl.rows("get", "tfjob", "talk")
    return row[head.index("STATE")]


@contextmanager
def watched(kubectl: Kubectl) -> Iterator[list[str]]:
    """The states that `kubectl get tfjobs -w` tells meanwhile; complete afterwards."""
    command = ["kubectl", "get", "tfjobs", "-w", "--no-headers"]
    watching = subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True)
    states: list[str] = []
    try:
        yield states
    finally:
        watching.terminate()
        states.extend(line.split()[1] for line in watching.communicate()[0].splitlines())


def is_running(kubectl: Kubectl) -> bool:
    pods = kubectl.pods()
    return len(pods) == 3 and set(pods.values()) == {"Running"} and state(kubectl) == "Running"


def test_a_job_lives_its_whole_life_in_kubectl(user: User, kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", talking(user)) == "tfjob.kubeflow.org/talk created\n"
    with watched(kubectl) as states:
        eventually(lambda: is_running(kubectl))
        assert set(kubectl.pods()) == {"talk-ps-0", "talk-worker-0", "talk-worker-1"}
        assert eventually(lambda: kubectl("logs", "talk-worker-1")) == "hello from talk-worker-1\n"

        running = ("get", "tfjobs", "-o", "name", "--field-selector")
        assert kubectl(*running, "status.tarragon.state=Running") == "tfjob.kubeflow.org/talk\n"
        assert kubectl(*running, "status.tarragon.state!=Running") == ""

        kubectl("patch", "tfjob", "talk", "--type=merge", "-p", '{"spec":{"runPolicy":{"backoffLimit":7}}}')
        assert kubectl("get", "tfjob", "talk", "-o", "jsonpath={.spec.runPolicy.backoffLimit}") == "7"

        assert kubectl("scale", "tfjob/talk", "--replicas=1") == "tfjob.kubeflow.org/talk scaled\n"
        eventually(lambda: set(kubectl.pods()) == {"talk-ps-0", "talk-worker-0"})

        described = kubectl("describe", "tfjob", "talk")
        assert re.search(r"^Name: +talk$", described, re.MULTILINE)
        assert "TFJobRunning" in described

        user.file("go", "")
        kubectl("wait", "tfjob/talk", "--for=condition=Succeeded", "--timeout=60s")
        assert state(kubectl) == "Succeeded"
        assert kubectl("delete", "tfjob", "talk") == 'tfjob.kubeflow.org "talk" deleted\n'
        eventually(lambda: not kubectl.pods())

    assert "Running" in states
    assert states[-1] == "Succeeded"
    assert kubectl("get", "tfjobs", "-o", "name") == ""
    assert kubectl("get", "services", "-o", "name") in {"", "service/kubernetes\n"}


def test_a_running_job_that_is_deleted_takes_its_pods_and_their_processes_along(user: User, kubectl: Kubectl) -> None:
    kubectl("create", "-f", talking(user))
    eventually(lambda: set(kubectl.pods().values()) == {"Running"} and len(kubectl.pods()) == 3)
    before = len(user.processes())

    kubectl("delete", "tfjob", "talk")
    eventually(lambda: not kubectl.pods())
    eventually(lambda: not [command for command in user.processes().values() if "hello from" in command])

    assert before - len(user.processes()) >= 3
