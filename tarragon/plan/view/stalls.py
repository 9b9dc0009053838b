"""Why a pod that is there does not get to run, as its node and its scheduler tell in its status.

Events would tell more of volumes, but reading all events of a cluster is a right that nothing else needs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tarragon.job.member import main_status
from tarragon.kube.codec import timestamp
from tarragon.kube.core import ContainerStatus, Pod, PodCondition, Terminated

IMAGE = "ImagePullBackOff"
CRASH_LOOP = "CrashLoopBackOff"
NOT_PREPARED = "PodNotPrepared"
"""Its node has not got its volumes, or its network, ready."""
NOT_TAKEN = "PodNotTaken"
"""The kubelet of its node has not said anything about it."""
NOT_SCHEDULED = "NotScheduled"
GATED = "SchedulingGated"
CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
NOT_READY = "NotReady"
NOT_GONE = "PodNotGone"

SOON = dt.timedelta(seconds=60)
"""What a healthy node does within seconds is told when it has taken so long."""
LONG = dt.timedelta(minutes=5)
"""What takes its time, as the pull of a large image or a look for data, is told when it has taken so long."""
LONGEST_WORDS = 512

_ORDINARY = frozenset({"", CREATING, INITIALIZING})
# A kubelet goes back and forth between the two.
_ALIKE = {"ErrImagePull": IMAGE}
_BY_PROGRAM = frozenset({CRASH_LOOP, "PostStartHookError"})
# How the condition was called before Kubernetes 1.28.
_PREPARED = ("PodReadyToStartContainers", "PodHasNetwork")
_BACK_OFF = "Back-off pulling image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """`words` are those of whoever stops the pod, as far as there are any."""

    reason: str
    words: str
    at: dt.datetime | None = None
    """When it is to be told if it still holds; None for at once."""
    is_hindrance: bool = False
    """The pod can't start, and the gang holds its places in vain. A slow start is none, nor what the program does."""

    def is_told(self, now: dt.datetime) -> bool:
        return self.at is None or self.at <= now

    @property
    def is_brief(self) -> bool:
        """A kubelet that waits before its next pull leaves out why the last one failed."""
        return self.reason == IMAGE and self.words.startswith(_BACK_OFF) and ": " not in self.words


def stall(pod: Pod, main: str) -> Stall | None:
    """`main` is the container that decides. None of a pod that runs, has ended, or has hardly begun."""
    if pod.metadata.is_ending:
        return _not_gone(pod)
    if pod.is_finished:
        return None
    if not pod.spec.node_name:
        return _unscheduled(pod)
    return next(_on_its_node(pod, main), None)


def hinders(pod: Pod, main: str, now: dt.datetime) -> bool:
    """Whether the pod is of no use to its gang where it is."""
    found = stall(pod, main)
    return found is not None and found.is_hindrance and found.is_told(now)


def _not_gone(pod: Pod) -> Stall | None:
    due = pod.metadata.deletion_timestamp
    if due is None:
        return None
    node = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    words = f"the earlier pod {pod.metadata.name}{node} was to be gone at {timestamp(due)}; is its node lost?"
    return Stall(reason=NOT_GONE, words=words, at=due + SOON)


def _unscheduled(pod: Pod) -> Stall | None:
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Stall(reason=scheduled.reason or NOT_SCHEDULED, words=scheduled.message)
    name = pod.spec.scheduler_name or "default-scheduler"
    words = f"no scheduler has looked at it; is {name} at work?"
    return next(_late(NOT_SCHEDULED, words, pod.metadata.creation_timestamp), None)


def _on_its_node(pod: Pod, main: str) -> Iterator[Stall]:
    """The first thing that stops it, in the order in which a node starts a pod."""
    yield from _initialization(pod)
    status = main_status(pod, main)
    waits = _waiting(status) if status is not None else None
    if waits is not None:
        yield waits
    if status is None or status.state.waiting is not None:
        yield from _creation(pod)
    else:
        yield from _besides(pod, status)
        yield from _unready(pod, status)


def _besides(pod: Pod, main: ContainerStatus) -> Iterator[Stall]:
    """What a sidecar lacks stops nobody who trains."""
    for other in pod.status.container_statuses:
        waits = _waiting(other, f"container {other.name}: ") if other.name != main.name else None
        if waits is not None:
            yield replace(waits, is_hindrance=False)


def _initialization(pod: Pod) -> Iterator[Stall]:
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    for status in pod.status.init_container_statuses:
        waits = _waiting(status, f"init container {status.name}: ")
        running = status.state.running
        if waits is not None:
            yield waits
        elif running is not None and status.name not in sidecars and running.started_at is not None:
            words = f"its init container {status.name} has run since {timestamp(running.started_at)}"
            yield Stall(reason=INITIALIZING, words=words, at=running.started_at + LONG)


def _waiting(status: ContainerStatus, whose: str = "") -> Stall | None:
    """Of a container that its node has something to say about."""
    waiting = status.state.waiting
    if waiting is None:
        return None
    if waiting.reason in _ORDINARY:
        if not waiting.message:
            return None
        return Stall(reason=NOT_PREPARED, words=whose + _short(waiting.message), is_hindrance=True)
    reason = _ALIKE.get(waiting.reason, waiting.reason)
    last = status.last_state.terminated
    if reason == CRASH_LOOP and last is not None:
        return Stall(reason=reason, words=whose + _crash(last, status.restart_count))
    is_main_matter = reason not in _BY_PROGRAM
    return Stall(reason=reason, words=whose + _short(waiting.message), is_hindrance=is_main_matter)


def _crash(last: Terminated, restarts: int) -> str:
    why = f" ({last.reason})" if last.reason not in {"", "Error"} else ""
    said = last.message.strip().rpartition("\n")[2]
    times = f", after {restarts} restarts" if restarts > 1 else ""
    return f"exit code {last.exit_code}{why}{times}" + (f": {_short(said)}" if said else "")


def _creation(pod: Pod) -> Iterator[Stall]:
    unprepared = _unprepared(pod)
    if unprepared is not None:
        since = unprepared.last_transition_time or pod.metadata.creation_timestamp
        words = f"node {pod.spec.node_name} has not got its volumes and its network ready; {_look_at_events(pod)}"
        if since is not None:
            # No hindrance: attaching, checking and handing over a large disk look just like one that can't be mounted.
            yield Stall(reason=NOT_PREPARED, words=words, at=since + SOON)
    elif not pod.status.container_statuses:
        # If the kubelet is gone for good, Kubernetes gives its pods up, and they are placed anew.
        words = f"the kubelet of node {pod.spec.node_name} has not begun with it"
        yield from _late(NOT_TAKEN, words, pod.metadata.creation_timestamp)
    elif not _waits_for_init(pod):
        words = f"its image is being pulled, or its volumes mounted, on {pod.spec.node_name}; {_look_at_events(pod)}"
        yield from _late(CREATING, words, _since(pod, "Ready"))


def _unprepared(pod: Pod) -> PodCondition | None:
    found = (pod.condition(kind) for kind in _PREPARED)
    return next((condition for condition in found if condition is not None and condition.status == "False"), None)


def _waits_for_init(pod: Pod) -> bool:
    initialized = pod.condition("Initialized")
    return initialized is not None and initialized.status == "False"


def _unready(pod: Pod, main: ContainerStatus) -> Iterator[Stall]:
    """Its main container runs, and by its probes or gates it is not ready."""
    ready = pod.condition("Ready")
    if main.state.running is None or ready is None or ready.status != "False":
        return
    times = [at for at in (ready.last_transition_time, main.state.running.started_at) if at is not None]
    if times:
        why = f": {ready.message}" if ready.message else ""
        words = f"it runs, but has not been ready since {timestamp(max(times))}{why}"
        yield Stall(reason=NOT_READY, words=words, at=max(times) + LONG)


def _late(reason: str, words: str, since: dt.datetime | None) -> Iterator[Stall]:
    if since is not None:
        yield Stall(reason=reason, words=words, at=since + LONG)


def _since(pod: Pod, condition: str) -> dt.datetime | None:
    """Since its node first spoke of it, as far as is known."""
    found = pod.condition(condition)
    since = found.last_transition_time if found is not None and found.status == "False" else None
    return since or pod.metadata.creation_timestamp


def _look_at_events(pod: Pod) -> str:
    return f"kubectl -n {pod.metadata.namespace} describe pod {pod.metadata.name} shows why"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_WORDS else flat[: LONGEST_WORDS - 1] + "…"
