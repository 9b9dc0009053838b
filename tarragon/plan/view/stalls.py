"""Finds out why an existing pod does not run or become ready, from what the kubelet and scheduler wrote to its status.

Events would say more about volumes, but nothing else needs the permission to read all events of a cluster.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tarragon.job.replica_state import main_container_status, sidecar_names
from tarragon.job.termination_message import telling_line
from tarragon.kube.codec import format_time
from tarragon.kube.core import ContainerStateTerminated, ContainerStatus, Node, Pod, PodCondition

IMAGE_PULL_BACKOFF = "ImagePullBackOff"
CRASH_LOOP = "CrashLoopBackOff"
# The values are part of the status, where users and programs read them.
POD_NOT_PREPARED = "PodNotPrepared"
"""The node has not prepared the pod's volumes or network."""
POD_NOT_STARTED_BY_KUBELET = "PodNotTaken"
"""The node's kubelet has not reported any status of the pod."""
NOT_SCHEDULED = "NotScheduled"
SCHEDULING_GATED = "SchedulingGated"
CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
NOT_READY = "NotReady"
POD_STUCK_IN_DELETION = "PodNotGone"
NODE_NOT_READY = "NodeNotReady"

SHORT_DELAY = dt.timedelta(seconds=60)
"""Stalls in steps that take a healthy node seconds are reported after this time."""
LONG_DELAY = dt.timedelta(minutes=5)
"""Stalls in steps that may take long, such as pulling a large image or preparing data, are reported after this time."""
MAX_MESSAGE_LENGTH = 512

_NORMAL_REASONS = frozenset({"", CREATING, INITIALIZING})
# A kubelet alternates between the two reasons.
_ALIASES = {"ErrImagePull": IMAGE_PULL_BACKOFF}
_CAUSED_BY_PROGRAM = frozenset({CRASH_LOOP, "PostStartHookError"})
# The second name is that of Kubernetes before 1.28.
_SANDBOX_CONDITIONS = ("PodReadyToStartContainers", "PodHasNetwork")
_BACK_OFF = "Back-off pulling image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a pod does not run. `message` is the message of the component that reported it, if there is one."""

    reason: str
    message: str
    report_at: dt.datetime | None = None
    """When to report the stall if it persists; None for immediately."""
    prevents_start: bool = False
    """Whether the pod can't start and wastes the gang's resources. False for slow starts and program errors."""

    def is_due(self, now: dt.datetime) -> bool:
        """Whether the stall has lasted long enough to be reported."""
        return self.report_at is None or self.report_at <= now

    @property
    def lacks_cause(self) -> bool:
        """Whether the message lacks the cause: in image pull backoff the kubelet does not say why the pull failed."""
        return self.reason == IMAGE_PULL_BACKOFF and self.message.startswith(_BACK_OFF) and ": " not in self.message


def find_stall(pod: Pod, main: str) -> Stall | None:
    """Return why the pod does not run; None if it runs or has finished, or if there is nothing unusual.

    The stall may be too young to be reported: see `is_due`. `main` is the container that decides the pod's result.
    """
    if pod.metadata.is_being_deleted:
        return _stuck_in_deletion(pod)
    if pod.is_finished:
        return None
    if not pod.spec.node_name:
        return _unscheduled(pod)
    return next(_stalls_on_node(pod, main), None)


def find_node_stall(pod: Pod, node: Node | None) -> Stall | None:
    """Return that the pod's node is not ready: the pod's status may be what a lost kubelet wrote last."""
    if node is None or node.is_ready or pod.is_finished or pod.metadata.is_being_deleted:
        return None
    since = node.ready_since
    words = f" since {format_time(since)}" if since is not None else ""
    message = f"node {node.metadata.name} has not been ready{words}; it is not known whether the pod runs"
    return Stall(reason=NODE_NOT_READY, message=message, report_at=None if since is None else since + SHORT_DELAY)


def is_unable_to_start(pod: Pod, main: str, now: dt.datetime) -> bool:
    """Whether the pod can't start on its node and has been stalled long enough to be reported."""
    found = find_stall(pod, main)
    return found is not None and found.prevents_start and found.is_due(now)


def _stuck_in_deletion(pod: Pod) -> Stall | None:
    due = pod.metadata.deletion_timestamp
    if due is None:
        return None
    node = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    message = (
        f"the earlier pod {pod.metadata.name}{node} should have been deleted by {format_time(due)}; "
        "its node may be lost"
    )
    return Stall(reason=POD_STUCK_IN_DELETION, message=message, report_at=due + SHORT_DELAY)


def _unscheduled(pod: Pod) -> Stall | None:
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        message = f"the pod may not be bound before its scheduling gates are removed: {gates}"
        return Stall(reason=SCHEDULING_GATED, message=message)
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Stall(reason=scheduled.reason or NOT_SCHEDULED, message=scheduled.message)
    name = pod.spec.scheduler_name or "default-scheduler"
    message = f"no scheduler has considered the pod; is {name} running?"
    return next(_after_long(NOT_SCHEDULED, message, pod.metadata.creation_timestamp), None)


def _stalls_on_node(pod: Pod, main: str) -> Iterator[Stall]:
    """Yield what stops the pod, in the order in which a node starts a pod."""
    status = main_container_status(pod, main)
    if status is None or not _has_run(status):
        yield from _initialization(pod)
    waiting_stall = _waiting(status) if status is not None else None
    if waiting_stall is not None:
        yield waiting_stall
    if status is None or status.state.waiting is not None:
        yield from _creation(pod)
    else:
        yield from _sidecar_stalls(pod, status)
        yield from _unready(pod, status)


def _has_run(status: ContainerStatus) -> bool:
    """Whether the container has run in this pod. From then on, it does not wait for sidecars."""
    return status.state.waiting is None or status.last_state.terminated is not None


def _sidecar_stalls(pod: Pod, main: ContainerStatus) -> Iterator[Stall]:
    """Yield stalls of other containers. They never prevent a start: the main container trains without them."""
    sidecars = sidecar_names(pod)
    beside = (each for each in pod.status.init_container_statuses if each.name in sidecars)
    for other in (*beside, *pod.status.container_statuses):
        waiting_stall = _waiting(other, f"container {other.name}: ") if other.name != main.name else None
        if waiting_stall is not None:
            yield replace(waiting_stall, prevents_start=False)


def _initialization(pod: Pod) -> Iterator[Stall]:
    """Yield what keeps the init containers from ending, and sidecars from starting: the main container waits."""
    sidecars = sidecar_names(pod)
    for status in pod.status.init_container_statuses:
        waiting_stall = _waiting(status, f"init container {status.name}: ")
        running = status.state.running
        if waiting_stall is not None:
            yield waiting_stall
        elif running is not None and running.started_at is not None:
            message = f"init container {status.name} has run since {format_time(running.started_at)}"
            if status.name in sidecars and status.started:
                continue
            if status.name in sidecars:
                message += " without having started: its startupProbe or postStart hook has not succeeded"
            yield Stall(reason=INITIALIZING, message=message, report_at=running.started_at + LONG_DELAY)


def _waiting(status: ContainerStatus, prefix: str = "") -> Stall | None:
    """Return the stall of a waiting container if its kubelet reports a problem."""
    waiting = status.state.waiting
    if waiting is None:
        return None
    if waiting.reason in _NORMAL_REASONS:
        if not waiting.message:
            return None
        return Stall(reason=POD_NOT_PREPARED, message=prefix + _shortened(waiting.message), prevents_start=True)
    reason = _ALIASES.get(waiting.reason, waiting.reason)
    last = status.last_state.terminated
    if reason == CRASH_LOOP and last is not None:
        return Stall(reason=reason, message=prefix + _crash(last, status.restart_count))
    prevents_start = reason not in _CAUSED_BY_PROGRAM
    return Stall(reason=reason, message=prefix + _shortened(waiting.message), prevents_start=prevents_start)


def _crash(last: ContainerStateTerminated, restarts: int) -> str:
    why = f" ({last.reason})" if last.reason not in {"", "Error"} else ""
    last_line = telling_line(last.message)
    restarts_text = f", after {restarts} restarts" if restarts > 1 else ""
    return f"exit code {last.exit_code}{why}{restarts_text}" + (f": {_shortened(last_line)}" if last_line else "")


def _creation(pod: Pod) -> Iterator[Stall]:
    unprepared = _unprepared(pod)
    if unprepared is not None:
        since = unprepared.last_transition_time or pod.metadata.creation_timestamp
        message = f"node {pod.spec.node_name} has not prepared the pod's volumes and network; {_describe_hint(pod)}"
        if since is not None:
            # This does not prevent the start: attaching and checking a large disk looks like one that can't be mounted.
            yield Stall(reason=POD_NOT_PREPARED, message=message, report_at=since + SHORT_DELAY)
    elif not pod.status.container_statuses:
        # If the kubelet does not come back, Kubernetes evicts its pods, and their replicas are scheduled again.
        message = f"the kubelet of node {pod.spec.node_name} has not started the pod"
        yield from _after_long(POD_NOT_STARTED_BY_KUBELET, message, pod.metadata.creation_timestamp)
    elif not _waits_for_init(pod):
        doing = "pulling the image" if _is_prepared(pod) else "pulling the image or mounting volumes"
        message = f"node {pod.spec.node_name} is still {doing}; {_describe_hint(pod)}"
        yield from _after_long(CREATING, message, _since(pod, "Ready"))


def _is_prepared(pod: Pod) -> bool:
    """Whether the kubelet says that volumes and network are ready; those before 1.29 do not say it."""
    found = (pod.condition(kind) for kind in _SANDBOX_CONDITIONS)
    return any(condition is not None and condition.status == "True" for condition in found)


def _unprepared(pod: Pod) -> PodCondition | None:
    found = (pod.condition(kind) for kind in _SANDBOX_CONDITIONS)
    return next((condition for condition in found if condition is not None and condition.status == "False"), None)


def _waits_for_init(pod: Pod) -> bool:
    initialized = pod.condition("Initialized")
    return initialized is not None and initialized.status == "False"


def _unready(pod: Pod, main: ContainerStatus) -> Iterator[Stall]:
    """Yield a stall if the main container runs but the pod is not ready because of its probes or readiness gates."""
    ready = pod.condition("Ready")
    if main.state.running is None or ready is None or ready.status != "False":
        return
    times = [at for at in (ready.last_transition_time, main.state.running.started_at) if at is not None]
    if times:
        why = f": {ready.message}" if ready.message else ""
        message = f"the pod runs but has not been ready since {format_time(max(times))}{why}"
        yield Stall(reason=NOT_READY, message=message, report_at=max(times) + LONG_DELAY)


def _after_long(reason: str, message: str, since: dt.datetime | None) -> Iterator[Stall]:
    if since is not None:
        yield Stall(reason=reason, message=message, report_at=since + LONG_DELAY)


def _since(pod: Pod, condition: str) -> dt.datetime | None:
    """Return when the condition became false, else when the pod was created."""
    found = pod.condition(condition)
    since = found.last_transition_time if found is not None and found.status == "False" else None
    return since or pod.metadata.creation_timestamp


def _describe_hint(pod: Pod) -> str:
    return f"see kubectl -n {pod.metadata.namespace} describe pod {pod.metadata.name}"


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_MESSAGE_LENGTH else flat[: MAX_MESSAGE_LENGTH - 1] + "…"
