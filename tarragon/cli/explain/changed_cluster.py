"""Reads a cluster as if nodes were added or removed, or jobs submitted. Nothing is changed in the cluster itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from msgspec.structs import replace

from tarragon.cli.jobview.target import ClusterReader
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.frameworks.plugin import Framework
from tarragon.job.model import GENERATION_ANNOTATION, TrainingJob
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.core import NODES, Node, NodeSpec, NodeStatus, PodCondition
from tarragon.kube.meta import Json, JsonObject, Key, ObjectMeta, PartialObjectMetadata, Resource
from tarragon.plan.status.work import kind_of

T = TypeVar("T")

HOSTNAME = "kubernetes.io/hostname"
DEFAULT_PODS = "110"
"""The kubelet's default for the pods of a node."""
_TRANSIENT_TAINTS = "node.kubernetes.io/"
_READY = PodCondition(type="Ready", status="True")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """A job that is not in the cluster, as it would be stored there."""

    framework: Framework
    key: Key
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanges:
    """What is different from the cluster."""

    added: Sequence[Node] = ()
    removed: frozenset[str] = frozenset()
    """Names of nodes. Their pods stay, as until somebody deletes them: the operator sees that their node is gone."""
    submitted: Sequence[SubmittedJob] = ()


class RememberedCluster:
    """Lists each kind once: what is compared must be of the same moment."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._lists: dict[tuple[str, type, Selector], ObjectList[Json]] = {}

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self._reader.get(resource, key)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        asked = (resource.full_name, resource.model, selection)
        if asked not in self._lists:
            self._lists[asked] = await self._reader.list(resource, selection)
        return cast("ObjectList[T]", self._lists[asked])


@dataclass(frozen=True, slots=True)
class ChangedCluster:
    """Lists the objects of a cluster with changes."""

    reader: ClusterReader
    changes: ClusterChanges = field(default_factory=ClusterChanges)

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self.reader.get(resource, key)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        found = await self.reader.list(resource, selection)
        if resource.full_name == NODES.full_name:
            gone = {Key("", name) for name in self.changes.removed}
            return _changed(found, resource.model, gone, self.changes.added)
        submitted = [job for job in self.changes.submitted if job.framework.resource.full_name == resource.full_name]
        return _changed(found, resource.model, {job.key for job in submitted}, [job.body for job in submitted])


def _changed(
    found: ObjectList[T], model: type[T], gone: Collection[Key], new: Sequence[Node | JsonObject]
) -> ObjectList[T]:
    """Return the list without some objects and with new ones. Informers list encoded objects, others decoded ones."""
    kept = found.items
    if gone:
        kept = [each for each in kept if decode(encode(each), PartialObjectMetadata).metadata.key not in gone]
    return ObjectList([*kept, *(decode(encode(each), model) for each in new)], found.resource_version)


def copies_of(node: Node, count: int, taken: Collection[str]) -> Sequence[Node]:
    """Return new nodes like this one, as if it were ready and empty, with names that are not taken."""
    metadata = node.metadata
    spec = replace(
        node.spec,
        unschedulable=False,
        taints=[taint for taint in node.spec.taints if not taint.key.startswith(_TRANSIENT_TAINTS)],
    )
    return [
        Node(
            metadata=_metadata(name, metadata.labels, metadata.annotations),
            spec=spec,
            status=NodeStatus(capacity=node.status.capacity, allocatable=node.status.allocatable, conditions=[_READY]),
        )
        for name in _new_names(metadata.name, count, taken)
    ]


def nodes_of_shape(
    amounts: Mapping[str, str], labels: Mapping[str, str], count: int, taken: Collection[str]
) -> Sequence[Node]:
    """Return new nodes that have these resources, these labels and no taints."""
    allocatable: dict[str, str | int | float] = {"pods": DEFAULT_PODS, **amounts}
    status = NodeStatus(capacity=allocatable, allocatable=allocatable, conditions=[_READY])
    return [
        Node(metadata=_metadata(name, labels, {}), spec=NodeSpec(), status=status)
        for name in _new_names("node", count, taken)
    ]


def submitted_job(
    framework: Framework, body: JsonObject, job: TrainingJob, generation: str, queued_at: dt.datetime
) -> SubmittedJob:
    """Return the job as the operator would find it: marked, and with the kind from which it learns."""
    key = job.key
    metadata = {
        **body["metadata"],
        "name": key.name,
        "uid": f"what-if-{framework.kind}-{key}",
        "creationTimestamp": format_time(queued_at),
        "annotations": {**(body["metadata"].get("annotations") or {}), GENERATION_ANNOTATION: generation},
    }
    stored = {
        **body,
        "apiVersion": framework.resource.api_version,
        "kind": framework.kind,
        "metadata": metadata,
        "status": {"tarragon": {"work": {"kind": kind_of(job)}}},
    }
    return SubmittedJob(framework=framework, key=key, body=stored)


def _metadata(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> ObjectMeta:
    return ObjectMeta(
        name=name, uid=f"what-if-{name}", labels={**labels, HOSTNAME: name}, annotations=dict(annotations)
    )


def _new_names(base: str, count: int, taken: Collection[str]) -> Sequence[str]:
    names: list[str] = []
    number = 0
    while len(names) < count:
        number += 1
        name = f"{base}-new-{number}"
        if name not in taken:
            names.append(name)
    return names
