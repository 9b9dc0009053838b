"""The progress of a job: its state and that of every replica, read from the job's status and its pods. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tarragon.cli.jobview.exits import past_end_text
from tarragon.cli.jobview.restarts import end_of_last_run
from tarragon.job import conditions
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress as TrainingProgress
from tarragon.job.replica_state import ended_before_deletion, main_container_status
from tarragon.job.status import Condition, JobStatus, RestartRecord, WaitReason
from tarragon.job.status_encoding import display_state
from tarragon.job.status_reason import reason_of
from tarragon.job.work import with_measured_remaining
from tarragon.kube.core import ContainerStateTerminated, ContainerStatus, Pod
from tarragon.kube.meta import Key

WAITING = "Waiting"
STARTING = "Starting"
RUNNING = "Running"
RESTARTING = "Restarting"
TERMINATING = "Ending"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
STOPPED = "Stopped"
"""Of a replica: it was terminated because its job ended, or its pod was deleted."""

STOPPING = "Stopping"
"""Of a job: it was deleted, and its replicas are terminating."""
INTERRUPTED = "Interrupted"
"""Of an unfinished job: its embedded cluster is not running."""

SCHEDULED_AGAIN = "scheduled again"

_NORMAL_WAITING_REASONS = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """One replica as users see it. `exit_code` is None while it runs, also after a restart."""

    replica: Replica
    state: str = WAITING
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    node: str = ""
    pod: str = ""
    started: dt.datetime | None = None
    finished: dt.datetime | None = None
    previous_end: str = ""
    """How the run before its last restart ended: `failed with exit code 1`."""

    @property
    def name(self) -> str:
        return str(self.replica)

    @property
    def exit_cell(self) -> str:
        """Its exit code in a table. That of a stopped replica only says how it reacted, and is lost with its pod."""
        return "-" if self.exit_code is None or self.state == STOPPED else str(self.exit_code)

    @property
    def seconds(self) -> float | None:
        """How long its container ran; None if it has not ended or never started."""
        if self.started is None or self.finished is None or self.started.timestamp() <= 0:
            return None
        return (self.finished - self.started).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A job at one moment. `state` is the one-word state that users see."""

    key: Key
    kind: str
    state: str
    reason: str = ""
    message: str = ""
    wait: WaitReason | None = None
    stall: str = ""
    """What keeps the replicas of an admitted job from being created, started or ready, as `why` words it."""
    created: dt.datetime | None = None
    started: dt.datetime | None = None
    completed: dt.datetime | None = None
    replicas: tuple[ReplicaProgress, ...] = ()
    training: TrainingProgress | None = None
    """How far the program says that it is."""

    @property
    def is_final(self) -> bool:
        return self.state in {Phase.SUCCEEDED, Phase.FAILED}

    def elapsed(self, now: dt.datetime) -> float:
        """Seconds from its creation to its end, or to now."""
        if self.created is None:
            return 0.0
        return max(0.0, ((self.completed or now) - self.created).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressInput:
    """The input of `progress_of`.

    `pods` has the newest pod of each replica, also deleted ones, whose UIDs are in `deleted_uids`. `state` overrides
    the state that the job's status shows.
    """

    key: Key
    kind: str
    created: dt.datetime | None
    status: JobStatus
    state: str = ""
    requested: Mapping[ReplicaType, int]
    main_container: str
    pods: Mapping[Replica, Pod] = field(default_factory=dict)
    deleted_uids: frozenset[str] = frozenset()


def progress_of(seen: ProgressInput) -> Progress:
    """Returns the job's progress, with every replica that exists, existed or is requested, by type and index."""
    status = seen.status
    condition = last_condition(status)
    return Progress(
        key=seen.key,
        kind=seen.kind,
        state=seen.state or state_of(status),
        reason=condition.reason if condition is not None else "",
        message="" if condition is None else SCHEDULED_AGAIN if _is_outdated(condition, status) else condition.message,
        wait=wait_of(status) if seen.state != INTERRUPTED else None,
        stall=_stall_message(status) if seen.state != INTERRUPTED else "",
        created=seen.created,
        started=status.start_time,
        completed=status.completion_time,
        training=None if status.progress is None else with_measured_remaining(status.progress, status.work),
        replicas=tuple(
            _member(seen, replica) for replica in sorted(_replicas(seen), key=replica_order(seen.requested))
        ),
    )


def _is_outdated(condition: Condition, status: JobStatus) -> bool:
    """Whether the condition reports an eviction but the job is admitted again. Conditions have whole seconds."""
    admitted = None if status.admission is None else status.admission.admitted_at
    is_eviction = condition.type in {conditions.EVICTED, conditions.RESTARTING} and status.phase is Phase.RESTARTING
    return is_eviction and admitted is not None and condition.last_update_time < admitted.replace(microsecond=0)


def state_of(status: JobStatus) -> str:
    """Returns the one-word state that users see."""
    waits = status.admission is None or status.admission.admitted_at is None
    return display_state(status, waits=waits and status.phase is Phase.CREATED)


def wait_of(status: JobStatus) -> WaitReason | None:
    """Why the job is not admitted yet, if the scheduler has said so."""
    admission = status.admission
    return admission.wait if admission is not None and admission.admitted_at is None else None


def _stall_message(status: JobStatus) -> str:
    """What holds the job up; empty while it waits for admission, where `wait_of` says why, and after its end."""
    reason = reason_of(status)
    return (
        ""
        if status.phase.is_final or wait_of(status) is not None or not reason.reason
        else f"{reason.reason}: {reason.message}"
    )


def last_condition(status: JobStatus) -> Condition | None:
    """Returns the newest condition that is true."""
    return next((condition for condition in reversed(status.conditions) if condition.is_true), None)


def newest_pods(pods: Iterable[tuple[Replica, Pod]]) -> dict[Replica, Pod]:
    """Returns the pod of each replica that was created last: the one before it may still be terminating."""
    result: dict[Replica, Pod] = {}
    for replica, pod in pods:
        other = result.get(replica)
        if other is None or _created(other) <= _created(pod):
            result[replica] = pod
    return result


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _replicas(seen: ProgressInput) -> set[Replica]:
    admission = seen.status.admission
    size = admission.size if admission is not None and admission.size else seen.requested
    requested = {Replica(kind, index) for kind, number in size.items() for index in range(number)}
    return requested | seen.pods.keys() | seen.status.succeeded_replicas


def replica_order(requested: Iterable[ReplicaType]) -> Callable[[Replica], tuple[int, Replica]]:
    """The sort key of replicas: by type in the order of the job's manifest, then by index."""
    order = {kind: position for position, kind in enumerate(requested)}
    return lambda replica: (order.get(replica.type, len(order)), replica)


def _member(seen: ProgressInput, replica: Replica) -> ReplicaProgress:
    pod = seen.pods.get(replica)
    if pod is None or (pod.metadata.uid in seen.deleted_uids and replica in seen.status.succeeded_replicas):
        return _without_pod(seen.status, replica)
    main = main_container_status(pod, seen.main_container)
    end = _last_end(main)
    is_gone = pod.metadata.uid in seen.deleted_uids
    state = _state(pod, main)
    if state == SUCCEEDED and replica not in seen.status.succeeded_replicas and _was_stopped(pod, main):
        state = STOPPED
    return ReplicaProgress(
        replica=replica,
        state=_after_deletion(state) if is_gone else state,
        restarts=_restarts(seen.status, replica, pod, main),
        exit_code=end.exit_code if end is not None else None,
        reason=_reason(pod, main, end),
        message=_message(pod, main, end),
        node=pod.spec.node_name,
        pod=pod.metadata.name,
        started=_started(main, end),
        finished=end.finished_at if end is not None else None,
        previous_end=_previous_end(seen.status, replica, main),
    )


def _previous_end(status: JobStatus, replica: Replica, main: ContainerStatus | None) -> str:
    """The pod knows the end of the container before; of the pod before, only the record does."""
    last = main.last_state.terminated if main is not None else None
    if last is not None:
        return past_end_text(last.exit_code, last.reason)
    return end_of_last_run(status.restarts.get(replica, RestartRecord()))


def _restarts(status: JobStatus, replica: Replica, pod: Pod, main: ContainerStatus | None) -> int:
    """The restarts of a replica. The record may lag behind the pod; no restart of this pod is counted twice."""
    record = status.restarts.get(replica, RestartRecord())
    counted = record.container_restarts_of_pod if record.pod_uid == pod.metadata.uid else 0
    return status.restart_count(replica) + max(0, (main.restart_count if main is not None else 0) - counted)


def _without_pod(status: JobStatus, replica: Replica) -> ReplicaProgress:
    """A replica without a pod: it has completed, was deleted at its job's end, or does not exist yet."""
    restarts = status.restart_count(replica)
    if replica in status.succeeded_replicas:
        return ReplicaProgress(replica=replica, state=SUCCEEDED, restarts=restarts, exit_code=0)
    # The record has the exit code of an earlier run, not of the last one.
    is_over = status.phase.is_final or status.phase is Phase.SUSPENDED
    return ReplicaProgress(replica=replica, state=STOPPED if is_over else WAITING, restarts=restarts)


def _after_deletion(state: str) -> str:
    return state if state in {SUCCEEDED, FAILED} else STOPPED


def _state(pod: Pod, main: ContainerStatus | None) -> str:
    if pod.status.phase == "Succeeded":
        return SUCCEEDED
    if pod.status.phase == "Failed":
        return STOPPED if pod.metadata.is_being_deleted and not _failed_to_start(main) else FAILED
    if pod.metadata.is_being_deleted:
        return TERMINATING
    if main is None or not pod.spec.node_name:
        return STARTING if pod.spec.node_name else WAITING
    return _container_state(main)


def _was_stopped(pod: Pod, main: ContainerStatus | None) -> bool:
    """Whether the program ended because its pod was deleted, as idle workers of an MPIJob do with exit code 0.

    Here the times count as they are: nothing is decided, and most who look have one clock.
    """
    terminated = main.state.terminated if main is not None else None
    return pod.metadata.is_being_deleted and not ended_before_deletion(pod, terminated, clock_skew=0)


def _failed_to_start(main: ContainerStatus | None) -> bool:
    """Whether the container failed to start: then the replica failed, even if its pod is being deleted."""
    return main is not None and main.state.terminated is not None and main.state.terminated.reason == "StartError"


def _container_state(main: ContainerStatus) -> str:
    if main.state.running is not None:
        return RUNNING
    if main.state.terminated is not None:
        return SUCCEEDED if main.state.terminated.exit_code == 0 else FAILED
    return RESTARTING if main.restart_count or main.last_state.terminated is not None else STARTING


def _last_end(main: ContainerStatus | None) -> ContainerStateTerminated | None:
    """How the container ended; None if it runs again."""
    if main is None:
        return None
    return main.state.terminated or (main.last_state.terminated if main.state.running is None else None)


def _started(main: ContainerStatus | None, end: ContainerStateTerminated | None) -> dt.datetime | None:
    if main is not None and main.state.running is not None:
        return main.state.running.started_at
    return end.started_at if end is not None else None


def _reason(pod: Pod, main: ContainerStatus | None, end: ContainerStateTerminated | None) -> str:
    if pod.status.reason:
        return pod.status.reason
    waiting = main.state.waiting.reason if main is not None and main.state.waiting is not None else ""
    if waiting not in _NORMAL_WAITING_REASONS:
        return waiting
    return end.reason if end is not None else ""


def _message(pod: Pod, main: ContainerStatus | None, end: ContainerStateTerminated | None) -> str:
    if pod.status.message:
        return pod.status.message
    if main is not None and main.state.waiting is not None and main.state.waiting.reason not in _NORMAL_WAITING_REASONS:
        return main.state.waiting.message
    return end.message if end is not None else ""
