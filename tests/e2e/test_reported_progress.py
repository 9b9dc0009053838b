"""A program that reports is seen: on the embedded cluster, by the variables and files that its pod gets."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tarragon import reporting
from tests.cli.manifests import group, job, python
from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPORTING = """
import tarragon
for step in range(1, 41):
    tarragon.report(step=step, of=40, loss=1 / step)
"""

STANDARD_LIBRARY = """
import json, os, ssl, urllib.request
trust = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
trust.verify_flags |= ssl.VERIFY_X509_STRICT
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {"Authorization": "Bearer " + file.read(), "Content-Type": "application/json"}
body = {"trainerStatus": {"progressPercentage": 25, "estimatedRemainingSeconds": 60}}
url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
with urllib.request.urlopen(request, context=trust) as reply:
    print("answered", reply.status)
"""


AS_LONG_AS_WANTED = """
import json, os, pathlib, ssl, time, urllib.request
trust = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
step = 0
while not pathlib.Path("enough").exists():
    time.sleep(0.2)
    step += 1
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        headers = {"Authorization": "Bearer " + file.read()}
    metrics = [{"name": "step", "value": str(step)}, {"name": "total_steps", "value": "100000"}]
    body = json.dumps({"trainerStatus": {"metrics": metrics}}).encode()
    request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers, method="POST")
    try:
        urllib.request.urlopen(request, context=trust).close()
    except OSError:
        print("nobody there", flush=True)
"""


def status_at_end(user: User, name: str) -> Any:
    def ended() -> Any:
        status = json.loads(user("get", name, "-o", "json").out).get("status", {})
        ours = status.get("tarragon", {})
        return ours.get("state") == "Succeeded" and ours.get("progress") and status

    return eventually(ended)


def last_status(user: User, name: str, steps: int) -> Any:
    """The last report may be recorded a moment after the end of the job."""

    def reported() -> Any:
        status = status_at_end(user, name)
        return status["tarragon"]["progress"]["done"] == steps and status

    return eventually(reported)


@pytest.mark.parametrize("kind", ["TFJob", "JAXJob"])
def test_what_a_program_reports_is_in_the_status_of_its_job(user: User, kind: str) -> None:
    user.file("tarragon.py", Path(reporting.__file__).read_text())  # as an image without Tarragon would have it
    made = json.loads(job("reports", Worker=group(python(REPORTING))))
    if kind == "JAXJob":
        replicas = made["spec"].pop("tfReplicaSpecs")
        made["kind"], made["spec"]["jaxReplicaSpecs"] = kind, replicas
        replicas["Worker"]["template"]["spec"]["containers"][0]["name"] = "jax"

    assert user.run(user.file("reports.yaml", json.dumps(made))).code == 0
    status = last_status(user, "reports", 40)

    found = status["tarragon"]["progress"]
    assert (found["done"], found["total"], found["source"]) == (40, 40, "report")
    assert status["trainerStatus"]["progressPercentage"] == 100
    assert {"name": "loss", "value": "0.025"} in status["trainerStatus"]["metrics"]
    assert "step 40/40 (100 %) · loss 0.025\n" in user("list").out
    assert "Progress:   step 40/40 (100 %) · loss 0.025, as of " in user("describe", "reports").out
    assert json.loads(user("describe", "reports", "-o", "json").out)["progress"] == {
        "done": 40,
        "total": 40,
        "unit": "steps",
        "loss": "0.025",
        "isOfEarlierPod": False,
        "text": "step 40/40 (100 %) · loss 0.025",
    }


def test_a_training_goes_on_while_nobody_takes_its_reports_and_is_heard_again_afterwards(user: User) -> None:
    def done() -> int:
        found = json.loads(user("get", "long", "-o", "json").out)["status"]["tarragon"]
        return int(found.get("progress", {}).get("done", 0))

    first = user.start("up")
    first.until("ready")
    assert user("submit", user.file("long.yaml", job("long", Worker=group(python(AS_LONG_AS_WANTED))))).code == 0
    eventually(done)
    first.signal(signal.SIGTERM)
    first.ended()
    second = user.start("up")
    second.until("ready")
    seen = done()
    eventually(lambda: done() > seen)
    user.file("enough", "")

    assert status_at_end(user, "long")["tarragon"]["restarts"] == {"total": 0}
    second.signal(signal.SIGTERM)
    second.ended()


def test_a_program_needs_nothing_but_the_standard_library(user: User) -> None:
    result = user.run(user.file("bare.yaml", job("bare", Worker=group(python(STANDARD_LIBRARY)))))
    status = status_at_end(user, "bare")

    assert "answered 200" in result.out
    assert status["tarragon"]["progress"]["text"] == "25 %"
    assert status["trainerStatus"]["estimatedRemainingSeconds"] == 60
