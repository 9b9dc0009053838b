"""Computes the job's next status by a chain of small rules, each of which adds its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.frameworks.plugin import Verdict
from tarragon.job import conditions
from tarragon.job.conditions import ConditionUpdate, remove_condition, set_condition
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import JobSignal, Phase, next_phase
from tarragon.job.replica_state import PodOutcome, ReplicaAction, ReplicaState
from tarragon.job.status import UNASSIGNED, FirstFailure, JobStatus, ReplicaStatus
from tarragon.kube.codec import format_time
from tarragon.plan.input.decode_and_validate import join_problems, shorten_problem
from tarragon.plan.lifecycle.gang_restart import set_not_grown, track_gang
from tarragon.plan.lifecycle.restart_records import forget_deleted_pods, update_restart_records
from tarragon.plan.nodes.left_to_kube_scheduler import (
    LEFT_CLAIMS_MESSAGE,
    LEFT_MESSAGE,
    LEFT_TO_KUBE_SCHEDULER,
    claims_devices,
    is_left_to_kube_scheduler,
)
from tarragon.plan.status.creation_failures import clear_blocked, record_image_pull_errors, set_blocked, set_stalled
from tarragon.plan.status.gpu_isolation import set_gpu_isolation
from tarragon.plan.status.ignored_pod_fields import ignored_pod_fields
from tarragon.plan.status.limits import ExceededLimit, exceeded_limit
from tarragon.plan.status.provenance import record_provenance
from tarragon.plan.status.resizes import set_resized
from tarragon.plan.status.work import record_work, with_kind
from tarragon.plan.view.job_view import JobView
from tarragon.plan.view.stalls import NODE_NOT_READY

StatusRule = Callable[[JobView, JobStatus], JobStatus]

UNKNOWN_FIELDS = "UnknownFields"
UNSUPPORTED_FIELDS = "UnsupportedFields"
"""The API server is too old for a field of the pod templates, or has its feature turned off."""
ADMITTED = "Admitted"
QUEUED = "Queued"
MAX_LISTED_FIELDS = 8
KEEPS_LAST_SPEC = "; until this is fixed, the job keeps its last valid spec and gets no new pods"


def compute_status(view: JobView) -> JobStatus:
    """Return the next status; it is equal to the recorded one if nothing has happened."""
    status = view.recorded_status
    for rule in STATUS_RULES:
        status = rule(view, status)
    # Dropping the UIDs of deleted pods alone is not worth a write: it is done along with other changes.
    return status if status == view.recorded_status else with_kind(view, forget_deleted_pods(view, status))


def set_created(view: JobView, status: JobStatus) -> JobStatus:
    if status.condition(conditions.CREATED) is not None:
        return status
    return _with_phase_condition(view, status, conditions.CREATED, f"{view.job.kind} {view.job.key.name} is created")


def report_spec_problems(view: JobView, status: JobStatus) -> JobStatus:
    """Report invalid fields, and those that are unknown to Tarragon or to the API server. Newer manifests must run."""
    if view.decoded.problems:
        return _with_spec_refused(view, status, join_problems(view.decoded.problems) + KEEPS_LAST_SPEC)
    status = replace(status, conditions=remove_condition(status.conditions, conditions.SPEC_INVALID))
    said = _unknown_fields(view) or _dropped_fields(view, status)
    if said is None:
        return replace(status, conditions=remove_condition(status.conditions, conditions.FIELDS_IGNORED))
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def _unknown_fields(view: JobView) -> ConditionUpdate | None:
    unknown = view.decoded.unknown_fields
    if not unknown:
        return None
    listed = [shorten_problem(problem) for problem in unknown[:MAX_LISTED_FIELDS]]
    more = f" and {len(unknown) - MAX_LISTED_FIELDS} more" if len(unknown) > MAX_LISTED_FIELDS else ""
    return ConditionUpdate(conditions.FIELDS_IGNORED, True, UNKNOWN_FIELDS, ", ".join(listed) + more)


def _dropped_fields(view: JobView, status: JobStatus) -> ConditionUpdate | None:
    """Return the condition for what the API server drops from pods; while there are none, the recorded one."""
    recorded = status.condition(conditions.FIELDS_IGNORED)
    if not view.members:
        if recorded is None or recorded.reason != UNSUPPORTED_FIELDS:
            return None
        return ConditionUpdate(conditions.FIELDS_IGNORED, True, UNSUPPORTED_FIELDS, recorded.message)
    dropped = ignored_pod_fields(view)
    if not dropped:
        return None
    message = "the API server drops " + "; ".join(dropped)
    return ConditionUpdate(conditions.FIELDS_IGNORED, True, UNSUPPORTED_FIELDS, message)


def _with_spec_refused(view: JobView, status: JobStatus, message: str) -> JobStatus:
    reason = view.dialect.condition_reason(conditions.INVALID)
    said = ConditionUpdate(conditions.SPEC_INVALID, True, reason, message)
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def set_admitted(view: JobView, status: JobStatus) -> JobStatus:
    """Set the condition Admitted from the admission: the scheduler itself writes no conditions."""
    admission = status.admission
    if admission is None or not view.needs_admission:
        return replace(status, conditions=remove_condition(status.conditions, conditions.ADMITTED))
    if is_left_to_kube_scheduler(admission):
        message = LEFT_CLAIMS_MESSAGE if claims_devices(view.job) else LEFT_MESSAGE
        total = sum(admission.size.values())
        said = ConditionUpdate(conditions.ADMITTED, True, LEFT_TO_KUBE_SCHEDULER, message.format(total=total))
    elif admission.admitted_at is not None:
        count = sum(admission.size.values())
        scheduled = count - sum(node == UNASSIGNED for node in admission.nodes.values())
        suffix = f"; can't grow: {admission.wait.message}" if admission.wait is not None else ""
        said = ConditionUpdate(
            conditions.ADMITTED, True, ADMITTED, f"{scheduled} of {count} replicas are scheduled{suffix}"
        )
    elif admission.wait is not None:
        retry = admission.backoff
        next_attempt = (
            f"; next attempt at {format_time(retry.not_before)}"
            if retry is not None and view.now < retry.not_before
            else ""
        )
        said = ConditionUpdate(
            conditions.ADMITTED, False, admission.wait.code, _with_suffix(admission.wait.message, next_attempt)
        )
    else:
        said = ConditionUpdate(conditions.ADMITTED, False, QUEUED, "the job is queued")
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def set_admission_refused(view: JobView, status: JobStatus) -> JobStatus:
    """Set or clear the condition AdmissionRefused: the scheduler rejected an admission that it did not write."""
    refused = None if status.admission is None or not view.needs_admission else status.admission.discarded
    if refused is None:
        return replace(status, conditions=remove_condition(status.conditions, conditions.ADMISSION_DISCARDED))
    said = ConditionUpdate(conditions.ADMISSION_DISCARDED, True, conditions.ADMISSION_DISCARDED, refused.message)
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def _with_suffix(message: str, next_attempt: str) -> str:
    return message.removesuffix(".") + next_attempt if next_attempt else message


def set_start_time(view: JobView, status: JobStatus) -> JobStatus:
    """Set the start time. Neither queueing nor an admission without a start counts towards activeDeadlineSeconds."""
    if not view.may_run and status.phase is Phase.CREATED:
        return replace(status, start_time=None)
    return replace(status, start_time=view.now) if view.may_run and status.start_time is None else status


def record_restarts(view: JobView, status: JobStatus) -> JobStatus:
    return replace(status, restarts=update_restart_records(view))


def record_finished(view: JobView, status: JobStatus) -> JobStatus:
    """Record finished replicas, so that they are not restarted when their pods are gone."""
    done = {replica for replica, member in view.members.items() if member.action is ReplicaAction.COMPLETE}
    return replace(status, succeeded_replicas=status.succeeded_replicas | done)


def count_replicas(view: JobView, status: JobStatus) -> JobStatus:
    counts = {group.type: _counts(view, status, group.type) for group in view.job.replica_specs}
    return replace(
        status, replica_statuses=counts, running_replicas=sum(_is_running(view, replica) for replica in view.members)
    )


def _is_running(view: JobView, replica: Replica) -> bool:
    """Whether the replica runs, and its node is not lost."""
    stall = view.stalls.get(replica)
    is_lost = stall is not None and stall.reason == NODE_NOT_READY and stall.is_due(view.now)
    return view.members[replica].is_running and not is_lost


def apply_verdict(view: JobView, status: JobStatus) -> JobStatus:
    """Apply the framework's verdict; if it has not ended the job, check the job's limits."""
    verdict = view.framework.evaluate(view.framework_view)
    if verdict.signal in {JobSignal.SUCCEEDED, JobSignal.FAILED}:
        return finish(view, status, verdict, conditions.FAILED)
    limit = exceeded_limit(view, status)
    if limit is not None:
        return finish(view, status, _verdict_of(limit), limit.reason)
    if not view.may_run:
        return _requeued(view, status)
    if verdict.signal is None:
        return status
    phase = next_phase(status.phase, verdict.signal)
    return replace(_with_phase_condition(view, status, phase.value, verdict.message), phase=phase)


def finish(view: JobView, status: JobStatus, verdict: Verdict, failure: str) -> JobStatus:
    """Return the final status. `failure` is the condition's reason if the verdict is a failure."""
    signal = JobSignal.FAILED if verdict.signal is None else verdict.signal
    phase = next_phase(status.phase, signal)
    reason = failure if phase is Phase.FAILED else phase.value
    status = _with_phase_condition(view, clear_blocked(status), phase.value, verdict.message, reason=reason)
    return replace(status, phase=phase, completion_time=view.now, first_failure=_first_failure(view, verdict))


STATUS_RULES: tuple[StatusRule, ...] = (
    set_created,
    report_spec_problems,
    record_provenance,
    set_admitted,
    set_admission_refused,
    set_gpu_isolation,
    set_resized,
    set_start_time,
    record_restarts,
    record_finished,
    count_replicas,
    set_blocked,
    set_stalled,
    record_image_pull_errors,
    apply_verdict,
    record_work,
    track_gang,
    set_not_grown,
)


def _requeued(view: JobView, status: JobStatus) -> JobStatus:
    """Set a running job to Restarting because it lost its admission; its pods are evicted and it is queued again."""
    if status.phase is not Phase.RUNNING:
        return status
    evicted = status.condition(conditions.EVICTED)
    why = "" if evicted is None else f" ({evicted.message})"
    message = f"{view.job.kind} {view.job.key.name} lost its admission{why} and is queued again"
    return replace(
        _with_phase_condition(view, status, conditions.RESTARTING, message),
        phase=next_phase(status.phase, JobSignal.REPLICA_LOST),
    )


def _with_phase_condition(view: JobView, status: JobStatus, kind: str, message: str, *, reason: str = "") -> JobStatus:
    word = reason or kind
    said = ConditionUpdate(
        kind, True, word if word in ExceededLimit.REASONS else view.dialect.condition_reason(word), message
    )
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def _verdict_of(limit: ExceededLimit) -> Verdict:
    return Verdict(signal=JobSignal.FAILED, message=limit.message, failed_replicas=limit.failures)


def _counts(view: JobView, status: JobStatus, kind: ReplicaType) -> ReplicaStatus:
    members = [member for replica, member in view.members.items() if replica.type == kind]
    return ReplicaStatus(
        active=sum(member.is_pod_running for member in members),
        succeeded=sum(replica.type == kind for replica in status.succeeded_replicas),
        failed=sum(_has_failed(member) for member in members),
    )


def _has_failed(member: ReplicaState) -> bool:
    return member.termination is not None and member.termination.outcome is PodOutcome.FAILED


def _first_failure(view: JobView, verdict: Verdict) -> FirstFailure | None:
    for replica in verdict.failed_replicas:
        member = view.members.get(replica)
        failure = member.last_failure if member is not None else None
        if failure is not None:
            return FirstFailure(
                replica=replica,
                exit_code=failure.exit_code,
                reason=failure.reason,
                message=failure.message,
                at=failure.finished_at or view.now,
            )
    return _failure_of_waiting(view) if verdict.signal is JobSignal.FAILED and not verdict.failed_replicas else None


def _failure_of_waiting(view: JobView) -> FirstFailure | None:
    """Return what the first replica waited for, of a job that exceeded its deadline before all replicas ran."""
    waiting = {replica: stall for replica, stall in view.stalls.items() if stall.is_due(view.now)}
    first = min(waiting, key=lambda replica: (not waiting[replica].prevents_start, replica), default=None)
    if first is None:
        return None
    stall = waiting[first]
    return FirstFailure(replica=first, exit_code=None, reason=stall.reason, message=stall.message, at=view.now)
