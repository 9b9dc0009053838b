"""Classifies what the failure of a replica means for its job, so that generations can be compared."""

from __future__ import annotations

from tarragon.job.model import ReplicaSpec, RestartPolicy, TrainingJob

FINAL = "final"
_CODES, _FAILURES, _ENDS = "codes", "failures", "ends"
DESCRIPTIONS = {
    _CODES: "its exit code decides whether a failure is final",
    FINAL: "any failure fails the job",
    _FAILURES: "it is restarted after every failure",
    _ENDS: "it is restarted after every end, even success",
}


BACKOFF_LIMIT_REMEDY = "limit it by a backoffLimit"
_REMEDIES = {_CODES: "exit with 138 to be restarted", _FAILURES: BACKOFF_LIMIT_REMEDY}


def remedy(fate: str, *, has_limit: bool) -> str:
    """The remedy for a fate. `has_limit` says whether the generation has a backoffLimit."""
    found = _REMEDIES.get(fate, "")
    return "" if found == BACKOFF_LIMIT_REMEDY and not has_limit else found


def failure_semantics(job: TrainingJob, group: ReplicaSpec) -> tuple[str, str]:
    """The fates of the chief, if it is in the group, and of the other replicas."""
    chief = job.chief
    others = _fate(group.restart_policy, group)
    if chief is None or chief.type != group.type:
        return others, others
    own = _fate(job.restart_policy_of(chief), group)
    return own, others if group.replicas > 1 else own


def _fate(policy: RestartPolicy, group: ReplicaSpec) -> str:
    match policy:
        case RestartPolicy.EXIT_CODE:
            return _CODES
        case RestartPolicy.NEVER:
            return FINAL
        case RestartPolicy.ON_FAILURE:
            return _FAILURES
        case RestartPolicy.ALWAYS:
            return _ENDS if group.pod_restart_policy == RestartPolicy.ALWAYS.value else _FAILURES


def uses_exit_codes(job: TrainingJob, group: ReplicaSpec) -> bool:
    return _CODES in failure_semantics(job, group)
