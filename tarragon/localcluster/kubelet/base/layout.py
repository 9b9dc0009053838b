"""The files of a node.

<node>/lock                            held by the kubelet that runs the node
<node>/identity                        prefix of every container's mark
<node>/shim.pyc, and the modules it imports
<node>/pods/<uid>/pod.json             the pod's checkpoint
<node>/pods/<uid>/manifest.json        the pod as last seen
<node>/pods/<uid>/volumes/<name>
<node>/pods/<uid>/work                 default working directory of containers
<node>/pods/<uid>/runs/<container>/<n> one run of a container: the folder of its shim
<node>/logs/<namespace>/<pod>/<uid>/<container>/<n>.log    kept after the pod is deleted
<node>/rsh/agent.pyc, <node>/rsh/<namespace>/ssh           programs on the PATH of containers
<shared>/ports.json, <shared>/_claims/<namespace>/<claim>  shared by all nodes of a home
<shared>/_hosts/<namespace>/<host name>                    as above: see rsh/hosts.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tarragon.localcluster.home.home import create_private_folder


@dataclass(frozen=True, slots=True)
class NodeFolder:
    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def identity(self) -> Path:
        return self.path / "identity"

    @property
    def pods(self) -> Path:
        return self.path / "pods"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def home_nodes(self) -> Path:
        return self.path.parent

    @property
    def claims(self) -> Path:
        """The folders of persistent volume claims. No node can be named `_claims`."""
        return self.home_nodes / "_claims"

    @property
    def hosts(self) -> Path:
        """The host names of pods. No node can be named `_hosts`."""
        return self.home_nodes / "_hosts"

    @property
    def rsh(self) -> Path:
        return self.path / "rsh"

    def pod(self, uid: str) -> PodFolder:
        return PodFolder(self.pods / uid)

    def pod_logs(self, namespace: str, name: str, uid: str) -> LogFolder:
        return LogFolder(self.logs / namespace / name / uid)

    def prepare(self) -> None:
        """Create the folders, readable by the owner only, as they hold secrets."""
        for folder in (self.path, self.pods, self.logs):
            create_private_folder(folder)


@dataclass(frozen=True, slots=True)
class PodFolder:
    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "pod.json"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def work(self) -> Path:
        return self.path / "work"

    def run(self, container: str, number: int) -> Path:
        return self.path / "runs" / container / str(number)

    def run_numbers(self, container: str) -> list[int]:
        """The numbers of the container's recorded runs, oldest first."""
        folder = self.path / "runs" / container
        return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())

    def container_names(self) -> list[str]:
        return sorted(path.name for path in (self.path / "runs").glob("*"))


@dataclass(frozen=True, slots=True)
class LogFolder:
    path: Path

    @property
    def pod_facts(self) -> Path:
        return self.path / "pod.json"

    def log(self, container: str, number: int) -> Path:
        return self.path / container / f"{number}.log"

    def run_numbers(self, container: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.path / container).glob("*.log") if path.stem.isdigit())

    def remove(self, container: str, number: int) -> None:
        log = self.log(container, number)
        for path in (log, log.with_name(log.name + ".1")):
            path.unlink(missing_ok=True)
