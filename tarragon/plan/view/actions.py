"""What the reconciler observes of one job and the actions that it takes, as plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.frameworks.owned_objects import Generated, OwnedContent
from tarragon.kube.core import Node, Pod, Service
from tarragon.kube.event import Event
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, Resource
from tarragon.plan.input.decode_and_validate import DecodedJob
from tarragon.plan.nodes.storage import VolumeCache
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.objects.vgpus import GpuLookup, GpuShortage, no_gpu_shortage

NAME_TAKEN = "NameTaken"
REFUSED = "Refused"
REFUSED_FOR_GATES = "SchedulingGated"
"""A webhook has added scheduling gates to a pod that names its node, which no API server accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCreate:
    """The API server rejected the job's last creates; no more objects are created before `retry_at`."""

    reason: str
    """NAME_TAKEN, REFUSED or REFUSED_FOR_GATES."""
    message: str
    retry_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """One job and all its objects, as the informer caches show them at this moment."""

    object: CustomObject
    decoded: DecodedJob
    """The object decoded and validated."""
    pods: Sequence[Pod]
    services: Sequence[Service]
    was_managed: bool = False
    """Whether Tarragon managed the job before its status was lost."""
    complete_pod: JsonObject | None = None
    """The job's pod with all of its fields, if the status has to show it anew (see `plan.status.pod_mirror`)."""
    pods_by_key: Mapping[Key, Pod] = field(default_factory=dict)
    services_by_key: Mapping[Key, Service] = field(default_factory=dict)
    """Pods and services of all owners: the job waits until the names that it needs are free."""
    nodes: Mapping[Key, Node] | None = None
    """All nodes of the cluster; None if the operator may not read them."""
    is_being_preempted: Callable[[str], bool] = lambda _: False
    """Whether kube-scheduler preempts pods on the named node to make room for another pod."""
    find_gpus: GpuLookup = lambda _: None
    """The GPUs that anchor pods hold, and those that HAMi may give to new pods."""
    gpu_shortage: GpuShortage = no_gpu_shortage
    """What a GPU that an anchor holds lacks for another pod."""
    pod_groups: Mapping[str, PodGroup] = field(default_factory=dict)
    """PodGroups with the name of the job, of any owner, by the full name of their kind."""
    owned_objects: Mapping[tuple[str, str], OwnedContent] = field(default_factory=dict)
    """The job's objects that are kept current, by the full name of their kind and their name."""
    unreadable_kinds: frozenset[str] = frozenset()
    """The full names of the kinds of such objects that the operator may not watch."""
    storage: VolumeCache = field(default_factory=VolumeCache)
    rejected_create: RejectedCreate | None = None
    was_gated: bool = False
    """Whether a create of the job was rejected with REFUSED_FOR_GATES: a webhook adds gates to its pods."""
    optional_retry_at: Mapping[str, dt.datetime] = field(default_factory=dict)
    """By name of a rejected optional object: when it may be created again."""
    settings: OperatorSettings = field(default_factory=OperatorSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Creates an object from a complete body. If it already exists and has the same owner, that is a success."""

    resource: Resource[Json]
    body: JsonObject
    ignores_existing: bool = False
    """An existing object is not read, which would need permission to read them all: its name contains the job's UID,
    or it is a Secret."""
    is_optional: bool = False
    """The object is optional: if the API server rejects it, an event says so, and the job runs without it."""
    consequence: str = ""
    """What a rejection means for the job; appended to the error message."""
    generated: Generated | None = None
    """Content that is added when the object is created."""
    overwrites_own: bool = False
    """An object of this name that is the job's own, but that the cache does not show, is patched to this body."""
    is_sequential: bool = False
    """Create the object after all creates before it have completed, and before those after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Deletes an object, conditional on the UID and resourceVersion that the decision was based on."""

    resource: Resource[Json]
    key: Key
    uid: str
    resource_version: str
    reason: str
    force: bool = False
    """Force deletion: with a grace period of 0, without waiting for the kubelet to confirm that the pod has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Applies a merge patch to an object of the job, conditional on UID and resourceVersion."""

    resource: Resource[Json]
    key: Key
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatePod:
    """Sets annotations on a pod for its program to read; None removes one. Conditional on UID and resourceVersion."""

    pod: Key
    uid: str
    resource_version: str
    annotations: Mapping[str, str | None]
    fallback: Delete | None = None
    """What is done instead if the operator may not patch pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What to do about a job, in this order: mark, status, events, notices, deletes, patches, creates.

    A failed write ends the step; the next reconcile decides again. The status is written before anything is deleted
    because a failure must be on record before its pod goes.
    """

    metadata_patch: JsonObject | None = None
    """Conditional merge patch that records the job's API generation; only events follow in the same step."""
    status_patch: JsonObject | None = None
    """Merge patch of the status subresource, conditional on the job's resourceVersion; None when nothing changes."""
    annotations: Sequence[AnnotatePod] = ()
    deletes: Sequence[Delete] = ()
    patches: Sequence[Patch] = ()
    creates: Sequence[Create] = ()
    events: Sequence[Event] = ()
    requeue_at: dt.datetime | None = None
    """When to reconcile again even if nothing happens: a deadline, a TTL, a backoff."""
