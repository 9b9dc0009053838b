"""Computes the job's next status by a chain of small rules, each of which adds its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.frameworks.plugin import Verdict
from tarragon.job import conditions
from tarragon.job.conditions import Said, with_condition, without_condition
from tarragon.job.member import End, Fate, Member
from tarragon.job.model import ReplicaType
from tarragon.job.phase import Phase, Signal, after
from tarragon.job.status import NOWHERE, FirstFailure, JobStatus, ReplicaCounts
from tarragon.kube.codec import timestamp
from tarragon.plan.input.decode_and_validate import brief, words
from tarragon.plan.lifecycle.gang_restart import bound, wish_told
from tarragon.plan.lifecycle.restart_records import recorded, settled
from tarragon.plan.nodes.left_to_kube_scheduler import LEFT, WORDS, is_left
from tarragon.plan.status.creation_failures import obstructed, stalled, unobstructed
from tarragon.plan.status.limits import Limit, reached
from tarragon.plan.status.provenance import traced
from tarragon.plan.status.sizes import resized
from tarragon.plan.view.job_view import Scene

Rule = Callable[[Scene, JobStatus], JobStatus]

UNKNOWN_FIELDS = "UnknownFields"
ADMITTED = "Admitted"
QUEUED = "Queued"
LONGEST_LIST = 8
GOES_ON = "; until this is fixed, the job keeps its last valid spec and gets no new pods"
RUNS_ON = "; the job had started before this was refused and runs on"


def outcome(view: Scene) -> JobStatus:
    """Return the next status; it is equal to the recorded one if nothing has happened."""
    status = view.before
    for rule in RULES:
        status = rule(view, status)
    # Dropping the UIDs of deleted pods alone is not worth a write: it is done along with other changes.
    return status if status == view.before else settled(view, status)


def created(view: Scene, status: JobStatus) -> JobStatus:
    if status.condition(conditions.CREATED) is not None:
        return status
    return _with_phase_condition(view, status, conditions.CREATED, f"{view.job.kind} {view.job.key.name} is created")


def understood(view: Scene, status: JobStatus) -> JobStatus:
    """Report invalid, unsupported and unknown fields. Unknown fields are only reported: newer manifests must run."""
    if view.taken.problems:
        return _with_spec_refused(view, status, words(view.taken.problems) + GOES_ON)
    if view.taken.unsupported:
        status = _with_spec_refused(view, status, words(view.taken.unsupported) + RUNS_ON)
    else:
        status = replace(status, conditions=without_condition(status.conditions, conditions.SPEC_REFUSED))
    unknown = view.taken.unknown
    if not unknown:
        return replace(status, conditions=without_condition(status.conditions, conditions.FIELDS_IGNORED))
    listed = [brief(problem) for problem in unknown[:LONGEST_LIST]]
    more = f" and {len(unknown) - LONGEST_LIST} more" if len(unknown) > LONGEST_LIST else ""
    said = Said(conditions.FIELDS_IGNORED, True, UNKNOWN_FIELDS, ", ".join(listed) + more)
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def _with_spec_refused(view: Scene, status: JobStatus, message: str) -> JobStatus:
    reason = view.dialect.condition_reason(conditions.INVALID)
    said = Said(conditions.SPEC_REFUSED, True, reason, message)
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def admitted(view: Scene, status: JobStatus) -> JobStatus:
    """Set the condition Admitted from the admission: the scheduler itself writes no conditions."""
    admission = status.admission
    if admission is None or not view.needs_admission:
        return replace(status, conditions=without_condition(status.conditions, conditions.ADMITTED))
    if is_left(admission):
        said = Said(conditions.ADMITTED, True, LEFT, WORDS.format(total=sum(admission.size.values())))
    elif admission.admitted is not None:
        count = sum(admission.size.values())
        scheduled = count - sum(node == NOWHERE for node in admission.nodes.values())
        suffix = f"; can't grow: {admission.wait.message}" if admission.wait is not None else ""
        said = Said(conditions.ADMITTED, True, ADMITTED, f"{scheduled} of {count} replicas are scheduled{suffix}")
    elif admission.wait is not None:
        retry = admission.retry
        next_attempt = (
            f"; next attempt at {timestamp(retry.after)}" if retry is not None and view.now < retry.after else ""
        )
        said = Said(conditions.ADMITTED, False, admission.wait.code, _with_suffix(admission.wait.message, next_attempt))
    else:
        said = Said(conditions.ADMITTED, False, QUEUED, "the job is queued")
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def refused_admission(view: Scene, status: JobStatus) -> JobStatus:
    """Set or clear the condition AdmissionRefused: the scheduler rejected an admission that it did not write."""
    refused = None if status.admission is None or not view.needs_admission else status.admission.refused
    if refused is None:
        return replace(status, conditions=without_condition(status.conditions, conditions.ADMISSION_REFUSED))
    said = Said(conditions.ADMISSION_REFUSED, True, conditions.ADMISSION_REFUSED, refused.message)
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def _with_suffix(message: str, next_attempt: str) -> str:
    return message.removesuffix(".") + next_attempt if next_attempt else message


def started(view: Scene, status: JobStatus) -> JobStatus:
    """Set the start time. Neither queueing nor an admission without a start counts towards activeDeadlineSeconds."""
    if not view.may_run and status.phase is Phase.CREATED:
        return replace(status, started=None)
    return replace(status, started=view.now) if view.may_run and status.started is None else status


def restarts_recorded(view: Scene, status: JobStatus) -> JobStatus:
    return replace(status, restarts=recorded(view))


def finishes_recorded(view: Scene, status: JobStatus) -> JobStatus:
    """Record finished replicas, so that they are not restarted when their pods are gone."""
    done = {replica for replica, member in view.members.items() if member.fate is Fate.DONE}
    return replace(status, finished=status.finished | done)


def counted(view: Scene, status: JobStatus) -> JobStatus:
    counts = {group.type: _counts(view, status, group.type) for group in view.job.groups}
    return replace(status, counts=counts, ready=sum(member.runs for member in view.members.values()))


def judged(view: Scene, status: JobStatus) -> JobStatus:
    """Apply the framework's verdict; if it has not ended the job, check the job's limits."""
    verdict = view.framework.judge(view.sight)
    if verdict.signal in {Signal.SUCCEEDED, Signal.FAILED}:
        return ended(view, status, verdict, conditions.FAILED)
    limit = reached(view, status)
    if limit is not None:
        return ended(view, status, _verdict_of(limit), limit.reason)
    if not view.may_run:
        return _requeued(view, status)
    if verdict.signal is None:
        return status
    phase = after(status.phase, verdict.signal)
    return replace(_with_phase_condition(view, status, phase.value, verdict.message), phase=phase)


def ended(view: Scene, status: JobStatus, verdict: Verdict, failure: str) -> JobStatus:
    """Return the final status. `failure` is the condition's reason if the verdict is a failure."""
    signal = Signal.FAILED if verdict.signal is None else verdict.signal
    phase = after(status.phase, signal)
    reason = failure if phase is Phase.FAILED else phase.value
    status = _with_phase_condition(view, unobstructed(status), phase.value, verdict.message, reason=reason)
    return replace(status, phase=phase, completed=view.now, first_failure=_first_failure(view, verdict))


RULES: tuple[Rule, ...] = (
    created,
    understood,
    traced,
    admitted,
    refused_admission,
    resized,
    started,
    restarts_recorded,
    finishes_recorded,
    counted,
    obstructed,
    stalled,
    judged,
    bound,
    wish_told,
)


def _requeued(view: Scene, status: JobStatus) -> JobStatus:
    """Set a running job to Restarting because it lost its admission; its pods are evicted and it is queued again."""
    if status.phase is not Phase.RUNNING:
        return status
    evicted = status.condition(conditions.EVICTED)
    why = "" if evicted is None else f" ({evicted.message})"
    message = f"{view.job.kind} {view.job.key.name} lost its admission{why} and is queued again"
    return replace(
        _with_phase_condition(view, status, conditions.RESTARTING, message), phase=after(status.phase, Signal.LOST)
    )


def _with_phase_condition(view: Scene, status: JobStatus, kind: str, message: str, *, reason: str = "") -> JobStatus:
    word = reason or kind
    said = Said(kind, True, word if word in Limit.REASONS else view.dialect.condition_reason(word), message)
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def _verdict_of(limit: Limit) -> Verdict:
    return Verdict(signal=Signal.FAILED, message=limit.message, failures=limit.failures)


def _counts(view: Scene, status: JobStatus, kind: ReplicaType) -> ReplicaCounts:
    members = [member for replica, member in view.members.items() if replica.type is kind]
    return ReplicaCounts(
        active=sum(member.is_active for member in members),
        succeeded=sum(replica.type is kind for replica in status.finished),
        failed=sum(_has_failed(member) for member in members),
    )


def _has_failed(member: Member) -> bool:
    return member.ending is not None and member.ending.end is End.FAILED


def _first_failure(view: Scene, verdict: Verdict) -> FirstFailure | None:
    for replica in verdict.failures:
        member = view.members.get(replica)
        failure = member.last_failure if member is not None else None
        if failure is not None:
            return FirstFailure(
                replica=replica,
                exit_code=failure.exit_code,
                reason=failure.reason,
                message=failure.message,
                at=failure.at or view.now,
            )
    return _failure_of_waiting(view) if verdict.signal is Signal.FAILED and not verdict.failures else None


def _failure_of_waiting(view: Scene) -> FirstFailure | None:
    """Return what the first replica waited for, of a job that exceeded its deadline before all replicas ran."""
    waiting = {replica: stall for replica, stall in view.stalls.items() if stall.is_told(view.now)}
    first = min(waiting, key=lambda replica: (not waiting[replica].is_hindrance, replica), default=None)
    if first is None:
        return None
    stall = waiting[first]
    return FirstFailure(replica=first, exit_code=None, reason=stall.reason, message=stall.words, at=view.now)
