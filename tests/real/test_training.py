"""A job made with kubectl on a real control plane is trained to its end by TensorFlow."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping

import pytest

from tests.conftest import ROOT
from tests.e2e.user import eventually
from tests.real.site import PATIENCE, Site, created_pods, end

pytestmark = [
    pytest.mark.real,
    pytest.mark.tensorflow,
    pytest.mark.kubectl,
    pytest.mark.slow,
    pytest.mark.timeout(500),
]


def test_a_job_trains_to_its_end_although_its_node_is_killed_in_the_middle(site: Site) -> None:
    node = site.node()
    short = (ROOT / "examples/tensorflow/ps.yaml").read_text().replace('"4000"', '"2000"')
    site.kubectl("create", "-f", "-", given=short)
    site.kubectl("wait", "--for=condition=Running", "tfjob/digits-ps", f"--timeout={PATIENCE:.0f}s")
    uids_before = uids(site)

    last = follow_until(r"step (\d+) of 2000", site, "digits-ps-chief-0")
    end(node, signal.SIGKILL)
    site.node()
    site.kubectl("wait", "--for=condition=Succeeded", "tfjob/digits-ps", f"--timeout={PATIENCE:.0f}s")

    said = site.kubectl("logs", "digits-ps-chief-0")
    steps = [int(step) for step in re.findall(r"^step (\d+) of 2000, loss ", said, re.MULTILINE)]
    assert steps == sorted(set(steps))
    assert last in steps
    assert "continuing from step" not in said  # it has never had to begin again
    done = re.search(r"^done: steps=(\d+) loss=\S+ accuracy=(\S+)$", said, re.MULTILINE)
    assert done
    assert int(done[1]) >= 2000
    assert float(done[2]) >= 0.95
    assert (site.models / "run-1/done").exists()
    assert uids(site).items() <= uids_before.items()
    assert set(created_pods(site).values()) == {1}
    assert len(created_pods(site)) == 4


def test_standard_parameter_servers_say_in_every_line_which_one_they_are(site: Site) -> None:
    site.node()
    text = (ROOT / "examples/tensorflow/v1alpha1.yaml").read_text()
    name = "  name: digits-v1alpha1\n"
    logs = name + "  annotations: {tarragon.dev/logs: json}\n"
    site.kubectl("create", "-f", "-", given=text.replace(name, logs))
    named = "jsonpath={.items[*].metadata.name}"
    servers: list[str] = []
    while len(servers) < 2:
        servers = eventually(lambda: site.kubectl("get", "pods", "-l", "job_type=PS", "-o", named).split())

    said = {pod: eventually(lambda pod=pod: log_with(site, pod, " serves at ")) for pod in servers}  # type: ignore[misc]

    for pod, log in said.items():
        for line in map(json.loads, log.splitlines()):
            assert (line["replica_type"], line["pod"], line["job"]) == ("ps", pod, "digits-v1alpha1")
            assert line["severity"] in {"INFO", "WARNING", "ERROR", "DEFAULT"}
    (scripts,) = site.kubectl("get", "configmaps", "-o", "name").split("-logs-")[1:]
    assert scripts
    uid = site.kubectl("get", "tfjob", "digits-v1alpha1", "-o", "jsonpath={.metadata.uid}")
    assert json.loads(said[servers[0]].splitlines()[0])["uid"] == uid


def log_with(site: Site, pod: str, words: str) -> str:
    """Empty until they are in it. There is no log to ask for before the container has begun."""
    command = ["kubectl", "--kubeconfig", str(site.plane.kubeconfig), "logs", pod]
    log = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    return log if words in log else ""


def follow_until(pattern: str, site: Site, pod: str) -> int:
    """The number in the first line of the pod's log that says this, as `kubectl logs -f` shows it."""
    command = ["kubectl", "--kubeconfig", str(site.plane.kubeconfig), "logs", "-f", pod]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        for line in following.stdout:
            if match := re.match(pattern, line):
                following.kill()
                return int(match[1])
    raise AssertionError(f"the log has ended without it:\n{site.logs()}")


def uids(site: Site) -> Mapping[str, str]:
    words = ("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{'\\n'}{end}")
    return dict(line.split() for line in site.kubectl(*words).splitlines())
