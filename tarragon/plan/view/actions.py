"""A plan: what the reconciler sees of one job, and what it is to do about it, as values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.kube.core import Node, Pod, Service
from tarragon.kube.event import Event
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, Resource
from tarragon.plan.input.decode_and_validate import Intake
from tarragon.plan.nodes.storage import Storage
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.objects.settings import Settings

NAME_TAKEN = "NameTaken"
REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The API server did not let the job's last objects be made; nothing is made before it is tried `again`."""

    reason: str
    """NAME_TAKEN or REFUSED."""
    message: str
    again: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One job and everything of its that exists, as the caches show it at this moment."""

    object: CustomObject
    taken: Intake
    """What the object means."""
    pods: Sequence[Pod]
    services: Sequence[Service]
    pods_there: Mapping[Key, Pod] = field(default_factory=dict)
    services_there: Mapping[Key, Service] = field(default_factory=dict)
    """Everybody's: names that others have keep the job waiting until they are free."""
    nodes: Mapping[Key, Node] | None = None
    """Everybody's; None where they may not be read."""
    is_cleared: Callable[[str], bool] = lambda _: False
    """Of a node, whether kube-scheduler sends pods away from there to make room for another one."""
    pod_groups: Mapping[str, PodGroup] = field(default_factory=dict)
    """Those that are called as the job, whosever they are, by the full name of their kind."""
    storage: Storage = field(default_factory=Storage)
    refusal: Refusal | None = None
    to_ask_again: Mapping[str, dt.datetime] = field(default_factory=dict)
    """What was refused and the job does without, by name: when it may be asked for again."""
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """The body is complete: names, namespace, owner, labels. Meeting one that exists with our owner is success."""

    resource: Resource[Json]
    body: JsonObject
    is_surely_ours: bool = False
    """Its name has the job's uid in it: one that exists is not looked at, which would take a right to read them all."""
    may_be_refused: bool = False
    """The job does without it: of a refusal people are told, and nothing else comes of it."""
    without: str = ""
    """What that means for the job, in words that follow those of the refusal."""
    alone: bool = False
    """When all before it have been made, and before all that come after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Conditional on the uid and version that the decision was made on."""

    resource: Resource[Json]
    key: Key
    uid: str
    resource_version: str
    reason: str
    at_once: bool = False
    """Without waiting for whoever was to say that it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A merge patch of something of the job's that is not as it should be, conditional on uid and version."""

    resource: Resource[Json]
    key: Key
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Annotations of a pod for its program to read, None for one that goes. Conditional on uid and version."""

    pod: Key
    uid: str
    resource_version: str
    annotations: Mapping[str, str | None]
    otherwise: Delete | None = None
    """What is done where the operator may not write to pods: nobody would ever have the note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """In this order: mark, status, events, notices, deletes, patches, creates. A failed write ends the step; the next
    one starts anew.

    The status goes first because a failure must be on record before its pod is deleted.
    """

    mark: JsonObject | None = None
    """Merge patch of the job's metadata (its generation), conditional; nothing else is done in the same step."""
    status: JsonObject | None = None
    """Merge patch of the status subresource, conditional on the job's resourceVersion; None when nothing changes."""
    notices: Sequence[Notice] = ()
    deletes: Sequence[Delete] = ()
    patches: Sequence[Patch] = ()
    creates: Sequence[Create] = ()
    events: Sequence[Event] = ()
    wake_at: dt.datetime | None = None
    """When to look again even if nothing happens: a deadline, a TTL, a back-off."""
