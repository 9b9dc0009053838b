"""What has become of a job: its status after this look, built by a chain of small rules, each adding its part."""

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
GOES_ON = "; until that is mended the job goes on as it was, and no pod of it is made"
RUNS_ON = "; the job had started before this was refused, and goes on as before"


def outcome(scene: Scene) -> JobStatus:
    """Equal to what is on record when nothing has happened."""
    status = scene.before
    for rule in RULES:
        status = rule(scene, status)
    # Forgetting is no news: it is written along with what is.
    return status if status == scene.before else settled(scene, status)


def created(scene: Scene, status: JobStatus) -> JobStatus:
    if status.condition(conditions.CREATED) is not None:
        return status
    return _said(scene, status, conditions.CREATED, f"{scene.job.kind} {scene.job.key.name} is created")


def understood(scene: Scene, status: JobStatus) -> JobStatus:
    """A typo must not be silent, a newer field must not stop a fleet."""
    if scene.taken.problems:
        return _refused(scene, status, words(scene.taken.problems) + GOES_ON)
    if scene.taken.unsupported:
        status = _refused(scene, status, words(scene.taken.unsupported) + RUNS_ON)
    else:
        status = replace(status, conditions=without_condition(status.conditions, conditions.SPEC_REFUSED))
    unknown = scene.taken.unknown
    if not unknown:
        return replace(status, conditions=without_condition(status.conditions, conditions.FIELDS_IGNORED))
    told = [brief(problem) for problem in unknown[:LONGEST_LIST]]
    more = f" and {len(unknown) - LONGEST_LIST} more" if len(unknown) > LONGEST_LIST else ""
    said = Said(conditions.FIELDS_IGNORED, True, UNKNOWN_FIELDS, ", ".join(told) + more)
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def _refused(scene: Scene, status: JobStatus, message: str) -> JobStatus:
    reason = scene.dialect.condition_reason(conditions.INVALID)
    said = Said(conditions.SPEC_REFUSED, True, reason, message)
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def admitted(scene: Scene, status: JobStatus) -> JobStatus:
    """The scheduler's words as a condition: it writes its own field only."""
    admission = status.admission
    if admission is None or not scene.needs_admission:
        return replace(status, conditions=without_condition(status.conditions, conditions.ADMITTED))
    if is_left(admission):
        said = Said(conditions.ADMITTED, True, LEFT, WORDS.format(total=sum(admission.size.values())))
    elif admission.admitted is not None:
        total = sum(admission.size.values())
        placed = total - sum(node == NOWHERE for node in admission.nodes.values())
        held = f"; no more of them: {admission.wait.message}" if admission.wait is not None else ""
        said = Said(conditions.ADMITTED, True, ADMITTED, f"{placed} of {total} replicas have their places{held}")
    elif admission.wait is not None:
        retry = admission.retry
        again = f"; tried again at {timestamp(retry.after)}" if retry is not None and scene.now < retry.after else ""
        said = Said(conditions.ADMITTED, False, admission.wait.code, _with(admission.wait.message, again))
    else:
        said = Said(conditions.ADMITTED, False, QUEUED, "it waits for its turn")
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def refused_admission(scene: Scene, status: JobStatus) -> JobStatus:
    """An admission that the scheduler found in the status and did not believe."""
    refused = None if status.admission is None or not scene.needs_admission else status.admission.refused
    if refused is None:
        return replace(status, conditions=without_condition(status.conditions, conditions.ADMISSION_REFUSED))
    said = Said(conditions.ADMISSION_REFUSED, True, conditions.ADMISSION_REFUSED, refused.message)
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def _with(message: str, again: str) -> str:
    return message.removesuffix(".") + again if again else message


def started(scene: Scene, status: JobStatus) -> JobStatus:
    """Waiting in the queue does not count against activeDeadlineSeconds, nor does a start that came to nothing."""
    if not scene.may_run and status.phase is Phase.CREATED:
        return replace(status, started=None)
    return replace(status, started=scene.now) if scene.may_run and status.started is None else status


def restarts_recorded(scene: Scene, status: JobStatus) -> JobStatus:
    return replace(status, restarts=recorded(scene))


def finishes_recorded(scene: Scene, status: JobStatus) -> JobStatus:
    """They are not started again, even when their pods are gone."""
    done = {replica for replica, member in scene.members.items() if member.fate is Fate.DONE}
    return replace(status, finished=status.finished | done)


def counted(scene: Scene, status: JobStatus) -> JobStatus:
    counts = {group.type: _counts(scene, status, group.type) for group in scene.job.groups}
    return replace(status, counts=counts, ready=sum(member.runs for member in scene.members.values()))


def judged(scene: Scene, status: JobStatus) -> JobStatus:
    """The framework's verdict; a limit ends what the replicas have not ended themselves."""
    verdict = scene.framework.judge(scene.sight)
    if verdict.signal in {Signal.SUCCEEDED, Signal.FAILED}:
        return ended(scene, status, verdict, conditions.FAILED)
    limit = reached(scene, status)
    if limit is not None:
        return ended(scene, status, _verdict_of(limit), limit.reason)
    if not scene.may_run:
        return _withdrawn(scene, status)
    if verdict.signal is None:
        return status
    phase = after(status.phase, verdict.signal)
    return replace(_said(scene, status, phase.value, verdict.message), phase=phase)


def ended(scene: Scene, status: JobStatus, verdict: Verdict, failure: str) -> JobStatus:
    """`failure` is the reason of the condition if it is one."""
    signal = Signal.FAILED if verdict.signal is None else verdict.signal
    phase = after(status.phase, signal)
    reason = failure if phase is Phase.FAILED else phase.value
    status = _said(scene, unobstructed(status), phase.value, verdict.message, reason=reason)
    return replace(status, phase=phase, completed=scene.now, first_failure=_first_failure(scene, verdict))


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


def _withdrawn(scene: Scene, status: JobStatus) -> JobStatus:
    """Its places went to somebody else; what ran is sent away, and the gang waits again."""
    if status.phase is not Phase.RUNNING:
        return status
    evicted = status.condition(conditions.EVICTED)
    why = "" if evicted is None else f" ({evicted.message})"
    message = f"{scene.job.kind} {scene.job.key.name} has lost its places{why}, and waits for new ones"
    return replace(_said(scene, status, conditions.RESTARTING, message), phase=after(status.phase, Signal.LOST))


def _said(scene: Scene, status: JobStatus, kind: str, message: str, *, reason: str = "") -> JobStatus:
    word = reason or kind
    said = Said(kind, True, word if word in Limit.REASONS else scene.dialect.condition_reason(word), message)
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def _verdict_of(limit: Limit) -> Verdict:
    return Verdict(signal=Signal.FAILED, message=limit.message, failures=limit.failures)


def _counts(scene: Scene, status: JobStatus, kind: ReplicaType) -> ReplicaCounts:
    members = [member for replica, member in scene.members.items() if replica.type is kind]
    return ReplicaCounts(
        active=sum(member.is_active for member in members),
        succeeded=sum(replica.type is kind for replica in status.finished),
        failed=sum(_has_failed(member) for member in members),
    )


def _has_failed(member: Member) -> bool:
    return member.ending is not None and member.ending.end is End.FAILED


def _first_failure(scene: Scene, verdict: Verdict) -> FirstFailure | None:
    for replica in verdict.failures:
        member = scene.members.get(replica)
        failure = member.last_failure if member is not None else None
        if failure is not None:
            return FirstFailure(
                replica=replica,
                exit_code=failure.exit_code,
                reason=failure.reason,
                message=failure.message,
                at=failure.at or scene.now,
            )
    return _never_started(scene) if verdict.signal is Signal.FAILED and not verdict.failures else None


def _never_started(scene: Scene) -> FirstFailure | None:
    """Of a job whose time was over before all its replicas ran: what the first of these waited for."""
    waiting = {replica: found for replica, found in scene.stalls.items() if found.is_told(scene.now)}
    first = min(waiting, key=lambda replica: (not waiting[replica].is_hindrance, replica), default=None)
    if first is None:
        return None
    found = waiting[first]
    return FirstFailure(replica=first, exit_code=None, reason=found.reason, message=found.words, at=scene.now)
