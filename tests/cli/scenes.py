"""Jobs and pods as the command line sees them; a builder sets only what its test is about."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from tarragon.cli.jobview.progress import Progress, ProgressInput, progress_of
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, PS
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.kube.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from tarragon.kube.meta import Key, ObjectMeta

BEGIN = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
CHIEF_0 = Replica(CHIEF, 0)


def at(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)


def worker(index: int) -> Replica:
    return Replica(WORKER, index)


def ps(index: int) -> Replica:
    return Replica(PS, index)


def running(since: float = 1) -> ContainerState:
    return ContainerState(running=ContainerStateRunning(started_at=at(since)))


def ended(code: int, reason: str = "", since: float = 1, until: float = 3) -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=code,
            reason=reason or ("Completed" if code == 0 else "Error"),
            started_at=at(since),
            finished_at=at(until),
        )
    )


def waiting(reason: str, message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def pod(
    replica: Replica,
    state: ContainerState | None = None,
    *,
    restarts: int = 0,
    before: ContainerState | None = None,
    ending: bool = False,
) -> Pod:
    """On a node, with one container `tensorflow`; finished when that has ended."""
    state = state or running()
    phase = "Pending" if state.waiting else "Running"
    if state.terminated is not None:
        phase = "Succeeded" if state.terminated.exit_code == 0 else "Failed"
    status = ContainerStatus(
        name="tensorflow", state=state, restart_count=restarts, last_state=before or ContainerState()
    )
    return Pod(
        metadata=ObjectMeta(
            name=f"digits-{replica}",
            namespace="default",
            uid=f"uid-{replica}",
            creation_timestamp=BEGIN,
            deletion_timestamp=at(3) if ending else None,
        ),
        spec=PodSpec(node_name="here", containers=[Container(name="tensorflow")]),
        status=PodStatus(phase=phase, container_statuses=[status]),
    )


def progress(
    pods: Mapping[Replica, Pod] | None = None,
    *,
    status: JobStatus | None = None,
    wished: Mapping[ReplicaType, int] | None = None,
    gone: frozenset[str] = frozenset(),
) -> Progress:
    """Of a job called digits that has one worker unless told otherwise."""
    return progress_of(
        ProgressInput(
            key=Key("default", "digits"),
            kind="TFJob",
            created=BEGIN,
            status=status or JobStatus(phase=Phase.RUNNING),
            requested=wished or {WORKER: 1},
            main_container="tensorflow",
            pods=pods or {},
            deleted_uids=gone,
        )
    )
