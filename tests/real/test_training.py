"""A job made with kubectl on a real control plane is trained to its end by TensorFlow."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.localcluster.kubelet.kubelet import end_all_containers
from tests.conftest import ROOT
from tests.e2e.user import eventually
from tools.controlplane import ControlPlane

pytestmark = [
    pytest.mark.real,
    pytest.mark.tensorflow,
    pytest.mark.kubectl,
    pytest.mark.slow,
    pytest.mark.timeout(500),
]

PATIENCE = 240.0
NODE = "worker-1"
VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: models}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: %s}
"""


class Site:
    """A control plane, the operator and one node as processes of their own, and kubectl."""

    def __init__(self, plane: ControlPlane, folder: Path, ending: ExitStack) -> None:
        self.plane = plane
        self.folder = folder
        self.models = folder / "models"
        self._ending = ending
        self.models.mkdir()

    def kubectl(self, *words: str, given: str | None = None) -> str:
        command = ["kubectl", "--kubeconfig", str(self.plane.kubeconfig), *words]
        ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert ended.returncode == 0, ended.stderr + self.logs()
        return ended.stdout

    def knows_jobs(self) -> bool:
        """Read here: `kubectl wait` and a JSONPath both fail in the moment before a definition has conditions."""
        definition = json.loads(self.kubectl("get", "crd", "tfjobs.kubeflow.org", "-o", "json"))
        conditions = definition.get("status", {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def operator(self) -> None:
        self._start("operator", "--kubeconfig", str(self.plane.kubeconfig), "--listen", "off")

    def node(self, *offers: str) -> subprocess.Popen[str]:
        """Once the cluster knows it as Ready. It has the identity and the rights of a kubelet, no more."""
        config = self.plane.user(f"system:node:{NODE}", ["system:nodes"])
        authority = str(self.plane.folder / "ca.crt")
        node = self._start("node", "--kubeconfig", str(config), "--client-ca-file", authority, "--name", NODE, *offers)
        assert node.stdout
        assert node.stdout.readline().startswith("ready"), self.logs()
        return node

    def logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))

    def _start(self, *words: str) -> subprocess.Popen[str]:
        with (self.folder / f"{words[0]}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tarragon", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
            )
        self._ending.callback(end, process)
        return process

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "TARRAGON_HOME": str(self.folder / "home"), "CUDA_VISIBLE_DEVICES": "-1"}


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> None:
    if process.poll() is None:
        process.send_signal(number)
    process.communicate(timeout=60)


def end_replicas(home: Path) -> None:
    """What a test that has failed leaves running."""
    for folder in home.glob("clusters/*/[!_]*"):
        if folder.is_dir():
            asyncio.run(end_all_containers(folder, SystemClock()))


@pytest.fixture
def site(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as ending:
        ending.callback(end_replicas, tmp_path / "home")
        site = Site(own_control_plane, tmp_path, ending)
        site.kubectl("create", "-f", str(ROOT / "deploy/crd-tfjobs.kubeflow.org.yaml"))
        eventually(site.knows_jobs)
        site.kubectl("create", "-f", "-", given=VOLUME % site.models)
        site.operator()
        yield site


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


def created_pods(site: Site) -> Mapping[str, int]:
    """How many times each was made, by namespace and name, by the API server's own account."""
    return Counter(
        f"{event['objectRef']['namespace']}/{event['objectRef']['name']}"
        for event in site.plane.audit_events()
        if event["verb"] == "create"
        and event["objectRef"].get("resource") == "pods"
        and "subresource" not in event["objectRef"]
        and event["responseStatus"]["code"] == 201
    )
