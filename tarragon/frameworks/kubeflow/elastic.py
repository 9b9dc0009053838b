"""Decodes the bounds of an elastic job, whatever its kind calls them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import ElasticPolicy, ReplicaSpec
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.field_reader import CollectedProblems, FieldReader


@dataclass(frozen=True, slots=True)
class ElasticBounds:
    """The two fields of a manifest with the bounds of the number of workers."""

    least: FieldReader
    most: FieldReader

    def decode(self, groups: Iterable[ReplicaSpec], *, least_default: int = 0) -> ElasticPolicy | None:
        """Decode the bounds; None without any. A missing one defaults to the requested number of workers.

        A missing minimum is never less than `least_default`.
        """
        if self.least.is_missing and self.most.is_missing:
            return None
        wish = next((group.replicas for group in groups if group.type == WORKER), 1)
        minimum, maximum = self.least.integer(1, MAX_REPLICAS), self.most.integer(1, MAX_REPLICAS)
        if minimum is None:
            minimum = max(min(wish, maximum or wish), least_default)
        return ElasticPolicy(minimum, maximum if maximum is not None else max(wish, minimum))


def within_bounds(group: ReplicaSpec, elastic: ElasticPolicy | None, notes: CollectedProblems) -> ReplicaSpec:
    """The group with a number of workers within the bounds, with a warning where it is not what the manifest says."""
    if elastic is None or group.type != WORKER or elastic.min_replicas > elastic.max_replicas:
        return group
    wish = min(max(group.replicas, elastic.min_replicas), elastic.max_replicas)
    if wish != group.replicas:
        bounds = f"{elastic.min_replicas} to {elastic.max_replicas}"
        written = FieldReader(group.replicas, f"{group.field_path}.replicas", notes)
        written.add_warning(f"{group.replicas} is outside the allowed range of {bounds}: the job requests {wish}")
    return replace(group, replicas=wish)
