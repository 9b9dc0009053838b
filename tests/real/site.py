"""A real control plane with the operator, a node of processes and kubectl, each in a process of its own."""

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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.clock import SystemClock
from tarragon.localcluster.kubelet.kubelet import end_all_containers
from tests.conftest import ROOT
from tests.deploy.stage import unvalidated
from tests.e2e.user import eventually
from tools.controlplane import ControlPlane

PATIENCE = 240.0
NODE = "worker-1"
OWN_NAMESPACE = "tarragon-system"
Json = dict[str, Any]


class Site:
    """A control plane, the operator and one node as processes of their own, and kubectl."""

    def __init__(self, plane: ControlPlane, folder: Path, ending: ExitStack) -> None:
        self.plane = plane
        self.folder = folder
        self.models = folder / "models"
        self._ending = ending
        self.models.mkdir()

    def install(self) -> str:
        """What the documented command prints. Returns once all kinds of jobs are served."""
        created = self.kubectl("create", "-f", "deploy/", *unvalidated(self.plane))
        for definition in re.findall(r"^customresourcedefinition\S*/(\S+) created", created, re.MULTILINE):
            eventually(lambda name=definition: self.serves(name))  # type: ignore[misc]
        return created

    def kubectl(self, *words: str, given: str | None = None) -> str:
        command = ["kubectl", "--kubeconfig", str(self.plane.kubeconfig), *words]
        ended = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=PATIENCE + 30, check=False, cwd=ROOT
        )
        assert ended.returncode == 0, ended.stderr + self.logs()
        return ended.stdout

    def wait(self, kind: str, name: str, claim: str, namespace: str = "default") -> None:
        """For a claim of `kubectl wait`, such as `condition=Running`."""
        words = ("wait", "-n", namespace, f"{kind}/{name}", f"--for={claim}", f"--timeout={PATIENCE:.0f}s")
        self.kubectl(*words)

    def read(self, kind: str, name: str, namespace: str = "default") -> Json:
        found: Json = json.loads(self.kubectl("get", "-n", namespace, kind, name, "-o", "json"))
        return found

    def serves(self, name: str) -> bool:
        """Read here: `kubectl wait` and a JSONPath both fail in the moment before a definition has conditions."""
        definition = json.loads(self.kubectl("get", "crd", name, "-o", "json"))
        conditions = definition.get("status", {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def map_images(self, images: Mapping[str, Json]) -> None:
        """For nodes that start later."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        (home / "images.yaml").write_text(yaml.safe_dump(dict(images)))

    def operator(self) -> None:
        """As somebody who may do everything."""
        self._start("operator", "--kubeconfig", str(self.plane.kubeconfig), "--listen", "off")

    def installed_operator(self) -> subprocess.Popen[str]:
        """As the service account that is installed for it, with its rights and no more."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{OWN_NAMESPACE}", "system:authenticated")
        config = self.plane.user(f"system:serviceaccount:{OWN_NAMESPACE}:tarragon", groups)
        words = ("operator", "--kubeconfig", str(config), "--lease-namespace", OWN_NAMESPACE, "--listen", "off")
        return self._start(*words)

    def node(self, *offers: str) -> subprocess.Popen[str]:
        """Once the cluster knows it as Ready. It has the identity and the rights of a kubelet, no more."""
        config = self.plane.user(f"system:node:{NODE}", ["system:nodes"])
        authority = str(self.plane.folder / "ca.crt")
        node = self._start("node", "--kubeconfig", str(config), "--client-ca-file", authority, "--name", NODE, *offers)
        assert node.stdout
        assert node.stdout.readline().startswith("ready"), self.logs()
        return node

    def logs(self) -> str:
        """Those of what the test has started, and of operators that run as pods."""
        pods = self.folder.glob(f"*/clusters/*/*/logs/{OWN_NAMESPACE}/*/*/*/*.log")
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in (*self.folder.glob("*.log"), *pods))

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


@contextmanager
def a_site(plane: ControlPlane, folder: Path) -> Iterator[Site]:
    with ExitStack() as ending:
        ending.callback(end_replicas, folder / "home")
        yield Site(plane, folder, ending)


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> None:
    if process.poll() is None:
        process.send_signal(number)
    process.communicate(timeout=60)


def end_replicas(home: Path) -> None:
    """What a test that has failed leaves running."""
    for folder in home.glob("clusters/*/[!_]*"):
        if folder.is_dir():
            asyncio.run(end_all_containers(folder, SystemClock()))


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
