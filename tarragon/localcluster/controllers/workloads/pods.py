"""Pods, as the workload controllers read them."""

from __future__ import annotations

import datetime as dt

from msgspec.structs import force_setattr

from tarragon.kube.meta import ObjectMeta, PartialObject, Resource, group_of


class Terminated(PartialObject, frozen=True):
    exit_code: int = 0
    finished_at: dt.datetime | None = None


class State(PartialObject, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(PartialObject, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: State = State()


class Condition(PartialObject, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: dt.datetime | None = None


class PodSpec(PartialObject, frozen=True):
    node_name: str = ""


class PodStatus(PartialObject, frozen=True):
    phase: str = "Pending"
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


_KINDS = frozenset({("apps", "ReplicaSet"), ("batch", "Job")})
"""Group and kind of the controllers that need the whole pod."""
_NO_SPEC, _NO_STATUS = PodSpec(), PodStatus()


class Pod(PartialObject, frozen=True):
    """A pod. Of the thousands that other controllers may manage, only the identity is kept."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        controller = self.metadata.controller_ref
        if controller is None or (group_of(controller.api_version), controller.kind) in _KINDS:
            return
        meta = self.metadata
        slim = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            owner_references=[controller],
        )
        force_setattr(self, "metadata", slim)
        force_setattr(self, "spec", _NO_SPEC)
        force_setattr(self, "status", _NO_STATUS)

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def is_finished(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def is_active(self) -> bool:
        """Whether the pod is neither finished nor terminating."""
        return not self.is_finished and not self.metadata.is_being_deleted

    @property
    def is_ready(self) -> bool:
        return self.ready_since is not None

    @property
    def ready_since(self) -> dt.datetime | None:
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                return condition.last_transition_time or self.metadata.creation_timestamp
        return None

    def available_at(self, least: int) -> dt.datetime | None:
        """When the pod will have been ready for `least` seconds; None while it is not ready."""
        since = self.ready_since
        return None if since is None else since + dt.timedelta(seconds=least)

    def is_available(self, least: int, now: dt.datetime) -> bool:
        at = self.available_at(least)
        return at is not None and at <= now

    @property
    def restarts(self) -> int:
        return sum(each.restart_count for each in self.status.container_statuses)


PODS: Resource[Pod] = Resource(group="", version="v1", plural="pods", kind="Pod", model=Pod)
