"""The names of pods and services since v1alpha2: `{job}-{type}-{index}` for both."""

from __future__ import annotations

from collections.abc import Iterable

from tarragon.frameworks.plugin import ObjectNames
from tarragon.job.model import Replica, ReplicaType, TrainingJob


def name(job: TrainingJob, replica: Replica) -> str:
    return f"{job.key.name}-{replica}".replace("/", "-")


def object_names(types: Iterable[ReplicaType]) -> ObjectNames:
    """The names of a kind with these replica types."""
    type_of = {kind.lower(): kind for kind in types}

    def replica_of(job: TrainingJob, name: str) -> Replica | None:
        """The replica of a pod's name, or None. Pods of a job `a-worker` are not taken for those of a job `a`."""
        prefix = f"{job.key.name}-"
        if not name.startswith(prefix):
            return None
        word, _, index = name[len(prefix) :].partition("-")
        is_index = index.isascii() and index.isdigit() and (index == "0" or not index.startswith("0"))
        return Replica(type_of[word], int(index)) if word in type_of and is_index else None

    return ObjectNames(pod=name, service=name, replica_of=replica_of)
