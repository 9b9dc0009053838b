"""The README of 2017, followed word by word with kubectl: its job, its sample output, its way to the logs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.user import User

pytestmark = [pytest.mark.kubectl, pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(300)]

DATA = Path(__file__).parents[1] / "data"
IMAGE = {"gcr.io/tf-on-k8s-dogfood/*": {"entrypoint": ["python", "acting.py"], "workdir": f"{DATA}/programs"}}
ZERO_VALUES = {"metadata": {"creationTimestamp": None}, "resources": {}, "conditions": None}
"""What Go writes of a field that nobody has set."""

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(user: User) -> Iterator[Kubectl]:
    """Beside a `tarragon up` that knows what is in the image of the example."""
    user.home.mkdir(mode=0o700)
    (user.home / "images.yaml").write_text(yaml.safe_dump(IMAGE))
    serving = user.start("up")
    serving.until("ready")
    environment = {**os.environ, "HOME": str(user.folder), "KUBECONFIG": user("kubeconfig").out.strip()}

    def run(*words: str) -> str:
        command = ["kubectl", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    yield run
    assert user("down").code == 0
    assert serving.ended().code == 0


def without_zero_values(found: Any) -> Any:
    match found:
        case dict():
            kept = {name: value for name, value in found.items() if ZERO_VALUES.get(name, found) != value}
            return {name: without_zero_values(value) for name, value in kept.items()}
        case list():
            return [without_zero_values(item) for item in found]
        case _:
            return found


def test_a_finished_job_looks_as_its_readme_showed_and_its_logs_are_where_it_said(kubectl: Kubectl) -> None:
    kubectl("create", "-f", str(DATA / "manifests" / "001-tf_job.yaml"))
    kubectl("wait", "tfjobs", "example-job", "--for=jsonpath={.status.phase}=Done", "--timeout=180s")

    found = yaml.safe_load(kubectl("get", "-o", "yaml", "tfjobs.v1alpha1.kubeflow.org", "example-job"))
    sample = without_zero_values(yaml.safe_load((DATA / "samples" / "v1alpha1-finished.yaml").read_text()))
    runtime_id = found["spec"]["RuntimeId"]
    assert re.fullmatch(r"[a-z0-9]{4}", runtime_id)
    assert found["spec"] == {**sample["spec"], "RuntimeId": runtime_id}
    assert found["status"].pop("tarragon")["state"] == "Succeeded"
    # Beside what its operator wrote, for `kubectl wait`.
    assert "Succeeded" in {each["type"] for each in found["status"].pop("conditions")}
    kinds = [each["tf_replica_type"] for each in sample["status"]["replicaStatuses"]]
    masters, *others = found["status"].pop("replicaStatuses")
    assert masters == sample["status"].pop("replicaStatuses")[0]
    assert [masters["tf_replica_type"], *(each["tf_replica_type"] for each in others)] == kinds
    # The sample counts workers and servers as running that had been stopped: ours don't.
    assert all(each.keys() == masters.keys() and "Running" not in each["ReplicasStates"] for each in others)
    assert found["status"] == sample["status"]

    pods = kubectl("get", "pods", "-l", f"runtime_id={runtime_id},job_type=MASTER", "-o", "name").split()
    assert re.fullmatch(rf"pod/example-job-master-{runtime_id}-0-[a-z0-9]{{5}}", pods[0])
    assert re.search(r"^master 0 has ended: loss 0\.0", kubectl("logs", pods[0]), re.MULTILINE)
    assert kubectl("get", "services", "-l", f"runtime_id={runtime_id}", "-o", "name") == ""
