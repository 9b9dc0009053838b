"""Decides what a Job does next: finish, suspend, or create and delete pods. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tarragon.base.time_arithmetic import add_seconds
from tarragon.kube.codec import format_time, parse_time
from tarragon.localcluster.controllers.workloads.conditions import found, with_condition
from tarragon.localcluster.controllers.workloads.job_count import Count, has_failed, index_of, is_tracked, parse_indexes
from tarragon.localcluster.controllers.workloads.job_failure import failure_action
from tarragon.localcluster.controllers.workloads.model import Job, Json
from tarragon.localcluster.controllers.workloads.pods import Pod

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Backoff in seconds after a failed pod; it doubles with each further failure without a success between."""
MOST_AT_ONCE = 500

_FAILING, _SUCCEEDING = "FailureTarget", "SuccessCriteriaMet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a Job finishes, with the reason and message of its conditions."""

    fails: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Pods to create and delete, and after how many seconds to reconcile again.

    `create` has an index for each pod, None in a Job that is not indexed. Pods in `surplus` are surplus and not
    counted; pods in `stop` are deleted because the Job has finished.
    """

    create: Sequence[int | None] = ()
    surplus: Sequence[Pod] = ()
    stop: Sequence[Pod] = ()
    requeue_after: float | None = None


# -------------------------------------------------------------------------------------------------------------- verdict


def verdict(job: Job, pods: Sequence[Pod], count: Count, now: dt.datetime) -> Verdict | None:
    """How the Job finishes, or None while it runs. A verdict that a condition has recorded is final."""
    for kind in (_FAILING, _SUCCEEDING):
        recorded = job.condition(kind)
        if recorded is not None:
            return Verdict(
                fails=kind == _FAILING, reason=recorded.get("reason", ""), message=recorded.get("message", "")
            )
    return _failure(job, pods, count, now) or _success(job, pods, count)


def _failure(job: Job, pods: Sequence[Pod], count: Count, now: dt.datetime) -> Verdict | None:
    for pod in pods:
        if is_tracked(pod) and (judgement := failure_action(job, pod)).action == "FailJob":
            return Verdict(fails=True, reason="PodFailurePolicy", message=judgement.message)
    if count.all_failed > job.spec.backoff_limit or _restarts_too_often(job, pods):
        words = "Job has reached the specified backoff limit"
        return Verdict(fails=True, reason="BackoffLimitExceeded", message=words)
    left = seconds_left(job, now)
    if left is not None and left <= 0:
        words = "Job was active longer than specified deadline"
        return Verdict(fails=True, reason="DeadlineExceeded", message=words)
    return None


def _restarts_too_often(job: Job, pods: Sequence[Pod]) -> bool:
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(pod.restarts for pod in pods if pod.is_active)
    return restarts > 0 if job.spec.backoff_limit == 0 else restarts >= job.spec.backoff_limit


def seconds_left(job: Job, now: dt.datetime) -> float | None:
    """Seconds until the Job's deadline, or None without one."""
    began = job.status.get("startTime")
    if job.spec.active_deadline_seconds is None or not began or job.spec.suspend:
        return None
    return (add_seconds(parse_time(began), job.spec.active_deadline_seconds) - now).total_seconds()


def _success(job: Job, pods: Sequence[Pod], count: Count) -> Verdict | None:
    rule = _rule_that_holds(job, count)
    if rule is not None:
        words = f"Matched rules at index {rule}"
        return Verdict(fails=False, reason="SuccessPolicy", message=words)
    if job.spec.completions is None:
        is_done = count.all_succeeded > 0 and not any(pod.is_active for pod in pods)
    else:
        is_done = count.all_succeeded >= job.spec.completions
    words = "Reached expected number of succeeded pods"
    return Verdict(fails=False, reason="CompletionsReached", message=words) if is_done else None


def _rule_that_holds(job: Job, count: Count) -> int | None:
    for number, rule in enumerate((job.spec.success_policy or {}).get("rules") or ()):
        wanted = parse_indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        done = count.completed if wanted is None else count.completed & wanted
        enough = rule.get("succeededCount") or (len(wanted) if wanted is not None else job.spec.completions or 0)
        if len(done) >= enough:
            return number
    return None


# --------------------------------------------------------------------------------------------------------------- status


def status(job: Job, pods: Sequence[Pod], count: Count, ends: Verdict | None, now: dt.datetime) -> Json:
    conditions: list[Json] = list(job.status.get("conditions") or [])
    whole: Json = {
        **count.status(job),
        "active": sum(pod.is_active for pod in pods) or None,
        "ready": sum(pod.is_active and pod.is_ready for pod in pods),
        "terminating": sum(_is_terminating(pod) for pod in pods),
    }
    if ends is None:
        whole["startTime"], conditions = _suspension(job, conditions, now)
    else:
        conditions = _ended(ends, conditions, now, is_over=_is_over(pods, count))
        whole["startTime"] = job.status.get("startTime") or format_time(now)
        if found(conditions, "Complete") is not None:
            whole["completionTime"] = job.status.get("completionTime") or format_time(now)
    return {**whole, "conditions": conditions or None}


def _is_over(pods: Sequence[Pod], count: Count) -> bool:
    """Whether all pods have finished and are counted."""
    return count.is_settled and all(pod.is_finished and not is_tracked(pod) for pod in pods)


def _ended(ends: Verdict, conditions: list[Json], now: dt.datetime, *, is_over: bool) -> list[Json]:
    said = {"status": "True", "reason": ends.reason, "message": ends.message}
    first, last = (_FAILING, "Failed") if ends.fails else (_SUCCEEDING, "Complete")
    for kind in (first, last) if is_over else (first,):
        conditions = with_condition(conditions, {"type": kind, **said}, now, "lastProbeTime")
    return conditions


def _suspension(job: Job, conditions: list[Json], now: dt.datetime) -> tuple[str | None, list[Json]]:
    """The start time and conditions. A resumed Job starts anew, and its deadline counts from there."""
    began: str | None = job.status.get("startTime")
    before = found(conditions, "Suspended")
    was_suspended = before is not None and before["status"] == "True"
    if job.spec.suspend:
        said = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
        return None, with_condition(conditions, said, now, "lastProbeTime")
    if was_suspended:
        said = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed"}
        return format_time(now), with_condition(conditions, said, now, "lastProbeTime")
    return began or format_time(now), conditions


def _is_terminating(pod: Pod) -> bool:
    return pod.metadata.is_being_deleted and not pod.is_finished


# ----------------------------------------------------------------------------------------------------------------- pods


def plan(job: Job, pods: Sequence[Pod], count: Count, ends: Verdict | None, now: dt.datetime) -> Plan:
    active = [pod for pod in pods if pod.is_active]
    if ends is not None:
        return Plan(stop=active)
    if job.spec.suspend:
        return Plan(surplus=active)
    wanted = _wanted(job, len(active), count)
    surplus, kept = _surplus(job, active, wanted, count)
    if surplus:
        return Plan(surplus=surplus, requeue_after=seconds_left(job, now))
    taken = len(kept)
    if job.spec.pod_replacement_policy == "Failed":
        taken += sum(_is_terminating(pod) for pod in pods)
    missing = max(0, min(wanted - taken, MOST_AT_ONCE))
    pause = pause_after_failures(job, pods, now) if missing else 0.0
    left = seconds_left(job, now)
    if pause > 0:
        return Plan(requeue_after=pause if left is None else min(pause, left))
    return Plan(create=_to_make(job, kept, pods, missing, count), requeue_after=left)


def _wanted(job: Job, active: int, count: Count) -> int:
    if job.spec.completions is None:
        return active if count.all_succeeded > 0 else job.spec.parallelism
    return max(0, min(job.spec.completions - count.all_succeeded, job.spec.parallelism))


def _surplus(job: Job, active: Sequence[Pod], wanted: int, count: Count) -> tuple[list[Pod], list[Pod]]:
    """Split active pods into surplus ones (duplicate indexes, and the youngest) and those that stay."""
    ordered = sorted(active, key=lambda pod: (not pod.is_ready, pod.status.phase != "Running", _born(pod)))
    if not job.spec.is_indexed:
        return ordered[wanted:], ordered[:wanted]
    kept: list[Pod] = []
    seen = set(count.completed)
    for pod in ordered:
        index = index_of(pod)
        if index is not None and index not in seen and index < (job.spec.completions or 0) and len(kept) < wanted:
            seen.add(index)
            kept.append(pod)
    return [pod for pod in ordered if pod not in kept], kept


def _to_make(job: Job, kept: Sequence[Pod], pods: Sequence[Pod], missing: int, count: Count) -> list[int | None]:
    if not job.spec.is_indexed:
        return [None] * missing
    taken = {*count.completed, *_indexes(kept)}
    if job.spec.pod_replacement_policy == "Failed":
        taken |= {*_indexes(pod for pod in pods if _is_terminating(pod))}
    free = (index for index in range(job.spec.completions or 0) if index not in taken)
    return [index for index, _ in zip(free, range(missing), strict=False)]


def _indexes(pods: Iterable[Pod]) -> set[int]:
    return {index for pod in pods if (index := index_of(pod)) is not None}


def pause_after_failures(job: Job, pods: Sequence[Pod], now: dt.datetime) -> float:
    """Seconds until a pod may be created, by the failures since the last success."""
    succeeded = [ended_at(pod, now) for pod in pods if pod.status.phase == "Succeeded"]
    failed = [ended_at(pod, now) for pod in pods if has_failed(job, pod)]
    since = [at for at in failed if not succeeded or at > max(succeeded)]
    if not since:
        return 0.0
    step = min(FIRST_PAUSE * 2.0 ** min(len(since) - 1, 10), LONGEST_PAUSE)
    return max(0.0, step - (now - max(since)).total_seconds())


def ended_at(pod: Pod, now: dt.datetime) -> dt.datetime:
    """When the pod's last container terminated, or else when its deletion was requested."""
    ends = [
        each.state.terminated.finished_at
        for each in pod.status.container_statuses
        if each.state.terminated is not None and each.state.terminated.finished_at is not None
    ]
    return min(now, max(ends, default=pod.metadata.deletion_timestamp or now))


def _born(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creation_timestamp
    return (created.isoformat() if created else "", pod.metadata.name)


# ------------------------------------------------------------------------------------------------------------------ TTL


def seconds_to_live(job: Job, now: dt.datetime) -> float | None:
    """Seconds until a finished Job is deleted by its TTL; None without one."""
    over = job.condition("Complete") or job.condition("Failed")
    if over is None or job.spec.ttl_seconds_after_finished is None:
        return None
    ended = parse_time(over["lastTransitionTime"])
    return (add_seconds(ended, job.spec.ttl_seconds_after_finished) - now).total_seconds()
