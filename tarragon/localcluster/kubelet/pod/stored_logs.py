"""The logs of pods that are gone: found again by name and label, and let go of when they are too many."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tarragon.kube.meta import OwnerIdentity, OwnerReference
from tarragon.kube.selectors import label_selector
from tarragon.localcluster.kubelet.base.files import read_json
from tarragon.localcluster.kubelet.base.layout import LogFolder

PODS = 1000
BYTES = 2**30
"""So many pods, and so many bytes of all their logs together, are kept after the pods are gone: the newest."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a container. `code` is None while it goes on; times are seconds since 1970."""

    container: str
    number: int
    started: float = 0.0
    finished: float = 0.0
    code: int | None = None
    reason: str = ""


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is worth knowing of a pod when only its logs are left. `removed` is 0 as long as the pod is there."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    labels: dict[str, str] = {}
    owner: str = ""
    """The uid of the controller: pods of two jobs of one name are told apart by it."""
    controller: OwnerReference | None = None
    """None also in records of before this was written down, which have `owner` alone."""
    created: float = 0.0
    removed: float = 0.0
    runs: list[RunFacts] = []


@dataclass(frozen=True, slots=True)
class KeptPod:
    """A pod's logs; read one with `kubelet.logs.read(pod.log(run))`."""

    facts: PodFacts
    folder: LogFolder

    @property
    def controlled_by(self) -> OwnerIdentity | None:
        """None where only a uid was written down, and of a pod that had no controller."""
        controller = self.facts.controller
        return controller.identity(self.facts.namespace) if controller is not None else None

    def is_of(self, owner: OwnerIdentity) -> bool:
        return bool(owner.uid) and self.facts.owner == owner.uid and self.controlled_by in {None, owner}

    def log(self, run: RunFacts) -> Path:
        return self.folder.log(run.container, run.number)


def kept_logs(nodes: Path, namespace: str = "", labels: str = "") -> list[KeptPod]:
    """The pods of all nodes below `nodes` that have logs, also those that still run, oldest first.

    Needs no cluster. Raises ValueError for a label selector that nobody can read.
    """
    fits = label_selector(labels)
    found = [pod for pod in _all(nodes, f"*/logs/{namespace or '*'}/*/*/pod.json") if fits(pod.facts.labels)]
    return sorted(found, key=lambda pod: (pod.facts.created, pod.facts.namespace, pod.facts.name))


def _all(folder: Path, pattern: str) -> Iterator[KeptPod]:
    for path in folder.glob(pattern):
        facts = read_json(path, PodFacts)
        if facts is not None:
            yield KeptPod(facts, LogFolder(path.parent))


def prune(logs: Path, *, pods: int = PODS, size: int = BYTES) -> None:
    """Remove the logs of the pods of one node that have been gone for longest, until the rest is within bounds."""
    gone = sorted(
        (pod for pod in _all(logs, "*/*/*/pod.json") if pod.facts.removed),
        key=lambda pod: pod.facts.removed,
        reverse=True,
    )
    used = 0
    for number, pod in enumerate(gone):
        used += sum(path.stat().st_size for path in pod.folder.path.rglob("*") if path.is_file())
        if number >= pods or used > size:
            _remove(pod.folder.path)


def _remove(folder: Path) -> None:
    """With the folders above it that are empty then: <namespace>/<pod>."""
    shutil.rmtree(folder, ignore_errors=True)
    for above in (folder.parent, folder.parent.parent):
        try:
            above.rmdir()
        except OSError:
            return
