"""The logs of deleted pods: found by namespace and labels, and pruned when they are too many."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tarragon.kube.meta import OwnerIdentity, OwnerReference
from tarragon.kube.selectors import parse_label_selector
from tarragon.localcluster.kubelet.base.files import read_json
from tarragon.localcluster.kubelet.base.layout import LogFolder, NodeFolder

MAX_PODS = 1000
MAX_BYTES = 2**30
"""How many deleted pods, and how many bytes of their logs in all, are kept: the newest ones."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a container. `code` is None while it runs; times are seconds since 1970.

    `threads` is the share of the cores that the latest run got because it sets no CPUs, 0 for none.
    """

    container: str
    number: int
    started: float = 0.0
    finished: float = 0.0
    code: int | None = None
    reason: str = ""
    threads: int = 0


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about a pod that are kept with its logs. `removed` is 0 while the pod exists."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    labels: dict[str, str] = {}
    owner: str = ""
    """The uid of the controller, which distinguishes pods of two jobs of the same name."""
    controller: OwnerReference | None = None
    """None also in files of earlier versions, which recorded only `owner`."""
    created: float = 0.0
    removed: float = 0.0
    runs: list[RunFacts] = []


@dataclass(frozen=True, slots=True)
class StoredPodLogs:
    """The stored logs of a pod; read one with `logs.read(pod.log(run))`."""

    facts: PodFacts
    folder: LogFolder

    @property
    def controlled_by(self) -> OwnerIdentity | None:
        """The identity of the controller; None without a controller, or if only its uid was recorded."""
        controller = self.facts.controller
        return controller.identity(self.facts.namespace) if controller is not None else None

    def is_controlled_by(self, owner: OwnerIdentity) -> bool:
        return bool(owner.uid) and self.facts.owner == owner.uid and self.controlled_by in {None, owner}

    def log(self, run: RunFacts) -> Path:
        return self.folder.log(run.container, run.number)


def find_logs(nodes: Path, namespace: str = "", labels: str = "") -> list[StoredPodLogs]:
    """The pods with logs of all nodes in the folder `nodes`, running pods included, oldest first.

    Needs no cluster. Raises ValueError for an invalid label selector.
    """
    matches = parse_label_selector(labels)
    pods = [pod for pod in _all(nodes, f"*/logs/{namespace or '*'}/*/*/pod.json") if matches(pod.facts.labels)]
    return sorted(pods, key=lambda pod: (pod.facts.created, pod.facts.namespace, pod.facts.name))


def _all(folder: Path, pattern: str) -> Iterator[StoredPodLogs]:
    for path in folder.glob(pattern):
        facts = read_json(path, PodFacts)
        if facts is not None:
            yield StoredPodLogs(facts, LogFolder(path.parent))


def prune(node: NodeFolder, *, pods: int = MAX_PODS, size: int = MAX_BYTES) -> None:
    """Remove logs of a node's deleted pods, those deleted first, until the rest is within the limits."""
    found = ((_removed_at(node, pod), pod) for pod in _all(node.logs, "*/*/*/pod.json"))
    deleted = sorted((each for each in found if each[0]), key=lambda each: each[0], reverse=True)
    used = 0
    for number, (_, pod) in enumerate(deleted):
        used += sum(path.stat().st_size for path in pod.folder.path.rglob("*") if path.is_file())
        if number >= pods or used > size:
            _remove(pod.folder.path)


def _removed_at(node: NodeFolder, pod: StoredPodLogs) -> float:
    """When the pod was deleted, 0 if it was not. A full disk may have kept it out of the facts."""
    if pod.facts.removed or node.pod(pod.facts.uid).path.exists():
        return pod.facts.removed
    return pod.folder.pod_facts.stat().st_mtime


def _remove(folder: Path) -> None:
    """Remove the folder, and its parents `<namespace>/<pod>` if they are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in (folder.parent, folder.parent.parent):
        try:
            parent.rmdir()
        except OSError:
            return
