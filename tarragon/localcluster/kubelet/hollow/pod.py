"""The few pod fields that the hollow kubelet reads, and the statuses that it writes. Pure."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from typing import Any

from tarragon.kube.codec import format_time
from tarragon.kube.core import ResourceRequirements
from tarragon.kube.meta import Key, PartialObject
from tarragon.localcluster.kubelet.base.downward import LOOPBACK
from tarragon.localcluster.kubelet.pod.status import PodFailure

PREFIX = "tarragon.dev/hollow-"
DEFAULT_GRACE = 30.0
LONGEST = 1e9

Json = dict[str, Any]


_SECONDS, _EXIT_CODE, _STOP_SECONDS = f"{PREFIX}seconds", f"{PREFIX}exit-code", f"{PREFIX}stop-seconds"
_NO_RESOURCES = ResourceRequirements()


class Meta(PartialObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: int | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class Container(PartialObject, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: ResourceRequirements = _NO_RESOURCES


class Spec(PartialObject, frozen=True):
    node_name: str = ""
    restart_policy: str = "Always"
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, str | int | float] = {}
    resources: ResourceRequirements = _NO_RESOURCES


class Running(PartialObject, frozen=True):
    started_at: dt.datetime | None = None


class State(PartialObject, frozen=True):
    running: Running | None = None


class ContainerStatus(PartialObject, frozen=True):
    restart_count: int = 0
    state: State = State()


class Status(PartialObject, frozen=True):
    phase: str = "Pending"
    start_time: str = ""
    container_statuses: list[ContainerStatus] = []


class HollowPod(PartialObject, frozen=True):
    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def version(self) -> int:
        """The resource version as a number. Newer is greater: guaranteed since Kubernetes 1.35, and true before."""
        return int(self.metadata.resource_version or 0)

    @property
    def is_ending(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_running(self) -> bool:
        return self.status.phase == "Running"

    @property
    def is_finished(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def has_valid_annotations(self) -> bool:
        """Whether all annotations are numbers."""
        return all(text is None or _number(text) is not None for text in self.annotated)

    @property
    def annotated(self) -> tuple[str | None, ...]:
        """The values of the annotations for the hollow kubelet."""
        return tuple(map(self.metadata.annotations.get, (_SECONDS, _EXIT_CODE, _STOP_SECONDS)))

    @property
    def seconds(self) -> float | None:
        return _number(self.metadata.annotations.get(_SECONDS))

    @property
    def exit_code(self) -> int | None:
        code = _number(self.metadata.annotations.get(_EXIT_CODE))
        return None if code is None else int(code)

    @property
    def stop_seconds(self) -> float:
        """Seconds until the containers of a deleted pod end: at most the grace period, after which they are killed."""
        grace = self.metadata.deletion_grace_period_seconds
        seconds = _number(self.metadata.annotations.get(_STOP_SECONDS)) or 0.0
        return min(seconds, DEFAULT_GRACE if grace is None else grace)

    @property
    def deletion_requested(self) -> dt.datetime | None:
        """When the deletion was requested. The API server stores when the grace period ends."""
        due, grace = self.metadata.deletion_timestamp, self.metadata.deletion_grace_period_seconds or 0
        return due - dt.timedelta(seconds=grace) if due else None

    @property
    def started(self) -> dt.datetime | None:
        """When its containers last started."""
        starts = [each.state.running.started_at for each in self.status.container_statuses if each.state.running]
        return starts[0] if starts else None

    @property
    def restarts(self) -> int:
        return max((each.restart_count for each in self.status.container_statuses), default=0)

    def restarts_after(self, code: int) -> bool:
        return self.spec.restart_policy == "Always" or (self.spec.restart_policy == "OnFailure" and code != 0)


def _number(text: str | None) -> float | None:
    """Parse a number; None if the text is none, or the number is out of range."""
    with contextlib.suppress(ValueError):
        number = float(text or "")
        return number if 0 <= number < LONGEST else None
    return None


def running_status(pod: HollowPod, now: dt.datetime, *, ended_with: int | None = None) -> Json:
    """The status of a running pod. `ended_with` is the exit code of the previous run, if it was just restarted."""
    new_restarts = 0 if ended_with is None else 1
    last = {} if ended_with is None else {"terminated": _terminated(pod, ended_with, now)}
    state = {"running": {"startedAt": format_time(now)}}
    return {
        "phase": "Running",
        "startTime": pod.status.start_time or format_time(now),
        "hostIP": LOOPBACK,
        "podIP": simulated_address(pod.metadata.uid),
        "podIPs": [{"ip": simulated_address(pod.metadata.uid)}],
        "conditions": _conditions("", now),
        "containerStatuses": [
            _container(pod, each, state, {"restartCount": pod.restarts + new_restarts, "lastState": last})
            for each in pod.spec.containers
        ],
        "initContainerStatuses": _init_statuses(pod, now),
    }


def ended_status(pod: HollowPod, code: int, now: dt.datetime) -> Json:
    """The status of a pod whose containers ended with this exit code, 128+n after signal n."""
    state = {"terminated": _terminated(pod, code, now)}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions("PodFailed" if code else "PodCompleted", now),
        "containerStatuses": [
            _container(pod, each, state, {"ready": False, "started": False, "restartCount": pod.restarts})
            for each in pod.spec.containers
        ],
    }


def rejected_status(verdict: PodFailure, now: dt.datetime) -> Json:
    return {
        "phase": "Failed",
        "reason": verdict.reason,
        "message": verdict.message,
        "startTime": format_time(now),
    }


def invalid_annotations_status(pod: HollowPod, now: dt.datetime) -> Json:
    message = f"{PREFIX}… must be numbers: {', '.join(map(repr, pod.annotated))}"
    return {"phase": "Failed", "reason": "UnreadableAnnotations", "message": message, "startTime": format_time(now)}


def simulated_address(uid: str) -> str:
    """The pod's simulated IP address, derived from its uid."""
    return f"10.{'.'.join(str(byte) for byte in hashlib.sha256(uid.encode()).digest()[:3])}"


def _container(pod: HollowPod, container: Container, state: Json, changes: Json) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": f"hollow://{pod.metadata.uid}.{container.name}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "lastState": {},
        "state": state,
        **changes,
    }


def _init_statuses(pod: HollowPod, now: dt.datetime) -> list[Json] | None:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", **_between(now, now)}}
    return [_container(pod, each, state, {"started": False}) for each in pod.spec.init_containers] or None


def _terminated(pod: HollowPod, code: int, now: dt.datetime) -> Json:
    return {"exitCode": code, "reason": "Error" if code else "Completed", **_between(pod.started or now, now)}


def _between(started: dt.datetime, finished: dt.datetime) -> Json:
    return {"startedAt": format_time(started), "finishedAt": format_time(finished)}


def _conditions(over: str, now: dt.datetime) -> list[Json]:
    """The pod's conditions. `over` is why it is not ready any more; empty while it runs."""
    since = {"lastTransitionTime": format_time(now)}
    unready = {"status": "False", "reason": over}
    return [
        {"type": "Initialized", "status": "True", **since},
        {"type": "Ready", "status": "True", **since, **(unready if over else {})},
        {"type": "ContainersReady", "status": "True", **since, **(unready if over else {})},
        {"type": "PodScheduled", "status": "True", **since},
    ]
