"""Where a node keeps what: every path of the kubelet in one place.

<node>/lock                            held by the kubelet that runs it
<node>/identity                        part of every container's mark
<node>/shim.pyc, and its parts beside it
<node>/pods/<uid>/pod.json             what the kubelet must remember of the pod
<node>/pods/<uid>/volumes/<name>
<node>/pods/<uid>/work                 working directory of containers that name none
<node>/pods/<uid>/runs/<container>/<n> one run of a container: the folder of its shim
<node>/logs/<namespace>/<pod>/<uid>/<container>/<n>.log    they stay after the pod
<shared>/ports.json, <shared>/_claims/<namespace>/<claim>  one for all nodes of a home
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tarragon.localcluster.home.home import make_private


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
    def shared(self) -> Path:
        return self.path.parent

    @property
    def claims(self) -> Path:
        """No node can have this name."""
        return self.shared / "_claims"

    def pod(self, uid: str) -> PodFolder:
        return PodFolder(self.pods / uid)

    def pod_logs(self, namespace: str, name: str, uid: str) -> LogFolder:
        return LogFolder(self.logs / namespace / name / uid)

    def prepare(self) -> None:
        """Readable by nobody else: secrets lie in here."""
        for folder in (self.path, self.pods, self.logs):
            make_private(folder)


@dataclass(frozen=True, slots=True)
class PodFolder:
    path: Path

    @property
    def record(self) -> Path:
        return self.path / "pod.json"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def work(self) -> Path:
        return self.path / "work"

    def run(self, container: str, number: int) -> Path:
        return self.path / "runs" / container / str(number)

    def numbers(self, container: str) -> list[int]:
        """Of the runs that are still known, oldest first."""
        folder = self.path / "runs" / container
        return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())

    def containers(self) -> list[str]:
        return sorted(path.name for path in (self.path / "runs").glob("*"))


@dataclass(frozen=True, slots=True)
class LogFolder:
    path: Path

    @property
    def facts(self) -> Path:
        return self.path / "pod.json"

    def log(self, container: str, number: int) -> Path:
        return self.path / container / f"{number}.log"

    def numbers(self, container: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.path / container).glob("*.log") if path.stem.isdigit())

    def forget(self, container: str, number: int) -> None:
        log = self.log(container, number)
        for path in (log, log.with_name(log.name + ".1")):
            path.unlink(missing_ok=True)
