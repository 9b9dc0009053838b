"""Tells a launcher that has failed by itself from one that has lost a worker.

mpirun can't go on without one of its workers, nor use the worker's new pod. So a launcher that ends because a worker
was lost is replaced as after a disruption: only the worker's own failure counts. A launcher that does not notice the
loss is replaced, too. In an elastic job, Horovod's launcher does all that itself.

A launcher whose pod is older than a worker's pod, or than a worker's last restart, has lost that worker. Those are
times of the API server and the operator; the clocks of nodes are compared only to order two failures. Each replacement
of a launcher needs another lost worker, and workers that fail count, so that a backoffLimit ends the job.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.options import Implementation, options_of
from tarragon.frameworks.plugin import JobObservation, StateReview
from tarragon.job.model import Replica
from tarragon.job.replica_state import PodOutcome, ReplicaState, disrupted, unjudged
from tarragon.job.status import RestartRecord

WORKER_LOST = "WorkerLost"
"""The reason of a launcher's end that is a consequence."""
CLOCK_SKEW = dt.timedelta(seconds=5)
CREATION_SKEW = dt.timedelta(seconds=1)
"""Times of creation have whole seconds, and come from several API servers."""
JUDGEMENT_DELAY = dt.timedelta(seconds=5)
"""How long after a launcher's failure a worker's end may become known that has caused it."""
SUCCESS_DELAY = dt.timedelta(seconds=2)
"""How long after a launcher's success the end of a worker may become known: kubelets look once a second."""
STALE_GRACE = dt.timedelta(seconds=60)
"""How long a launcher may run on after a worker was replaced, until it is replaced itself. Most end within seconds."""


def review_worker_loss(observation: JobObservation, now: dt.datetime) -> StateReview:
    """Return the states with the launcher's end judged by what happened to the workers."""
    launcher, states = observation.job.chief, observation.replica_states
    member = states.get(launcher) if launcher is not None else None
    if launcher is None or member is None or member.is_leaving or observation.job.elastic_policy is not None:
        return StateReview(states=states)
    run = _LauncherRun(observation=observation, launcher=launcher, member=member)
    found = _review_end(run, now) if member.termination is not None else _review_running(run, now)
    reviewed = {**states, launcher: found.state}
    if member.termination is not None and found.state.termination is None:
        # Nor do later ends of workers mean anything before that of the launcher does: it may have succeeded.
        ended = {replica: worker for replica, worker in run.workers.items() if worker is not None}
        reviewed |= {replica: unjudged(worker) for replica, worker in ended.items() if worker.termination is not None}
    return StateReview(states=reviewed, next_at=found.next_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LauncherRun:
    """A pod of the launcher, with all that is observed of its job."""

    observation: JobObservation
    launcher: Replica
    member: ReplicaState

    @property
    def created_at(self) -> dt.datetime | None:
        return self.member.pod.metadata.creation_timestamp

    @property
    def ended_at(self) -> dt.datetime | None:
        return self.member.termination.finished_at if self.member.termination is not None else None

    @property
    def workers(self) -> Mapping[Replica, ReplicaState | None]:
        """The workers that the launcher needs, with their pods: all but those that have succeeded."""
        return {
            replica: self.observation.replica_states.get(replica)
            for replica in self.observation.replicas
            if replica.type == WORKER and replica not in self.observation.status.succeeded_replicas
        }

    def record_of(self, replica: Replica) -> RestartRecord:
        return self.observation.status.restarts.get(replica) or RestartRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The launcher's reviewed state, and when to review it again."""

    state: ReplicaState
    next_at: dt.datetime | None = None


def _review_end(run: _LauncherRun, now: dt.datetime) -> _Found:
    member, ending = run.member, run.member.termination
    if ending is not None and ending.outcome is PodOutcome.SUCCEEDED:
        return _review_success(run, now)
    if ending is None or ending.outcome is not PodOutcome.FAILED or not run.workers:
        return _Found(state=member)
    lost = sorted(replica for replica, worker in run.workers.items() if _was_lost(run, replica, worker))
    if lost or _is_recorded_as_consequence(run):
        return _Found(state=disrupted(member, WORKER_LOST, lost))
    # A time in the future, or long ago, is that of a wrong clock or of a stopped operator.
    if run.ended_at is None or abs(now - run.ended_at) >= JUDGEMENT_DELAY:
        return _Found(state=member)
    return _Found(state=unjudged(member), next_at=run.ended_at + JUDGEMENT_DELAY)


def _review_success(run: _LauncherRun, now: dt.datetime) -> _Found:
    """Believe Open MPI's launcher that it has succeeded only if no worker was lost before.

    mpirun of Open MPI 5.0 exits with 0 when it loses the daemon of a worker, although the other ranks were aborted. It
    does so at once, so that the end of the worker may become known only after that of the launcher.
    """
    if options_of(run.observation.job).implementation is not Implementation.OPEN_MPI:
        return _Found(state=run.member)
    lost = sorted(replica for replica, worker in run.workers.items() if _was_lost_before_end(run, replica, worker))
    if lost or _is_recorded_as_consequence(run):
        return _Found(state=disrupted(run.member, WORKER_LOST, lost))
    if not run.workers or run.ended_at is None or abs(now - run.ended_at) >= SUCCESS_DELAY:
        return _Found(state=run.member)
    return _Found(state=unjudged(run.member), next_at=run.ended_at + SUCCESS_DELAY)


def _review_running(run: _LauncherRun, now: dt.datetime) -> _Found:
    """Replace a launcher that runs on although one of its workers was replaced: it can't succeed any more.

    One that had not started when that happened can, but is hardly older than STALE_GRACE, and loses little.
    """
    replaced_at = {
        replica: at
        for replica, worker in run.workers.items()
        for at in [_replaced_at(run, replica, worker) if worker is not None else None]
        if at is not None
    }
    if not run.member.is_running or not replaced_at:
        return _Found(state=run.member)
    due = min(replaced_at.values()) + STALE_GRACE
    if now < due:
        return _Found(state=run.member, next_at=due)
    return _Found(state=disrupted(run.member, WORKER_LOST, sorted(replaced_at)))


def _was_lost(run: _LauncherRun, replica: Replica, worker: ReplicaState | None) -> bool:
    """Whether the worker was not there for the whole run of a launcher that has ended."""
    if worker is None or worker.is_leaving:
        return True
    if worker.termination is None:
        return (
            not worker.is_running
            or _is_on_lost_node(worker)
            or _has_unrecorded_restart(run, replica, worker)
            or _replaced_at(run, replica, worker) is not None
        )
    if worker.termination.outcome is not PodOutcome.FAILED:
        return worker.termination.outcome is PodOutcome.DISRUPTED
    ended_at = worker.termination.finished_at
    return ended_at is None or run.ended_at is None or ended_at <= run.ended_at + CLOCK_SKEW


def _was_lost_before_end(run: _LauncherRun, replica: Replica, worker: ReplicaState | None) -> bool:
    """Whether the worker was surely lost before the launcher ended. Times of ends have whole seconds."""
    if run.ended_at is None:
        return worker is None
    if worker is None:
        return not _is_recorded_after(run, replica, run.ended_at)
    metadata = worker.pod.metadata
    if metadata.deletion_timestamp is not None:
        notice = dt.timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
        return metadata.deletion_timestamp - notice <= run.ended_at
    if worker.termination is not None and worker.termination.outcome is not PodOutcome.SUCCEEDED:
        return worker.termination.finished_at is not None and worker.termination.finished_at <= run.ended_at
    replaced_at = _replaced_at(run, replica, worker)
    # The new pod may be as old as the launcher's end, or younger: that end becomes known only later.
    is_replaced = replaced_at is not None and replaced_at <= run.ended_at + SUCCESS_DELAY
    is_known = _is_recorded_after(run, replica, run.ended_at)
    is_recorded = replaced_at is not None and _is_recorded_during(run, replica, run.ended_at)
    return is_recorded or (is_replaced and not is_known) or _has_unrecorded_restart(run, replica, worker)


def _is_recorded_after(run: _LauncherRun, replica: Replica, at: dt.datetime) -> bool:
    """Whether the worker is on record as having ended after this time; not when that was recorded, which may be late.

    A worker that was deleted left no record. When it was is not known, and another run costs less than a lie.
    """
    finished_at = run.record_of(replica).finished_at
    if finished_at is None or run.created_at is None:
        return False
    return finished_at > max(run.created_at, at)


def _is_recorded_during(run: _LauncherRun, replica: Replica, at: dt.datetime) -> bool:
    """Whether the worker is on record as having ended between the launcher's creation and this time."""
    finished_at = run.record_of(replica).finished_at
    return finished_at is not None and run.created_at is not None and run.created_at < finished_at <= at


def _replaced_at(run: _LauncherRun, replica: Replica, worker: ReplicaState) -> dt.datetime | None:
    """Return when the worker that the launcher had started with was replaced or restarted; None if it was not."""
    created_at, record = worker.pod.metadata.creation_timestamp, run.record_of(replica)
    if run.created_at is None or worker.termination is not None:
        return None
    if created_at is not None and created_at > run.created_at + CREATION_SKEW:
        return created_at
    is_later = record.ended_at is not None and record.ended_at > run.created_at + CLOCK_SKEW
    return record.ended_at if worker.container_restarts and is_later else None


def _has_unrecorded_restart(run: _LauncherRun, replica: Replica, worker: ReplicaState) -> bool:
    """Whether the worker's container was restarted in its pod just now."""
    record = run.record_of(replica)
    recorded = record.container_restarts_of_pod if record.pod_uid == worker.pod.metadata.uid else 0
    return worker.container_restarts > recorded


def _is_on_lost_node(worker: ReplicaState) -> bool:
    """Whether Kubernetes has marked the pod not ready because its node does not report: its containers still are."""
    ready = worker.pod.condition("Ready")
    is_unready = ready is not None and ready.status == "False" and ready.reason != "ReadinessGatesNotReady"
    return is_unready and all(each.ready for each in worker.pod.status.container_statuses)


def _is_recorded_as_consequence(run: _LauncherRun) -> bool:
    """Whether this end is on record as a consequence; the lost worker may be back by now."""
    record = run.record_of(run.launcher)
    return record.is_pod_end_counted and record.pod_uid == run.member.pod.metadata.uid and record.reason == WORKER_LOST
