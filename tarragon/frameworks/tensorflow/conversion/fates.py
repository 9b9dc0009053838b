"""Classifies what the failure of a replica means for its job, so that generations can be compared."""

from __future__ import annotations

from tarragon.job.model import ReplicaGroup, RestartPolicy, TrainingJob

_CODES, _FINAL, _FAILURES, _ENDS = "codes", "final", "failures", "ends"
WORDS = {
    _CODES: "its exit code decides whether a failure is final",
    _FINAL: "any failure fails the job",
    _FAILURES: "it is restarted after every failure",
    _ENDS: "it is restarted after every end, even success",
}


BOUND = "limit it by a backoffLimit"
_REMEDIES = {_CODES: "exit with 138 to be restarted", _FAILURES: BOUND}


def remedy(fate: str, *, has_limit: bool) -> str:
    """The remedy for a fate. `has_limit` says whether the generation has a backoffLimit."""
    found = _REMEDIES.get(fate, "")
    return "" if found == BOUND and not has_limit else found


def fates(job: TrainingJob, group: ReplicaGroup) -> tuple[str, str]:
    """The fates of the chief, if it is in the group, and of the other replicas."""
    chief = job.chief
    others = _fate(group.restart_policy, group)
    if chief is None or chief.type is not group.type:
        return others, others
    own = _fate(job.policy_of(chief), group)
    return own, others if group.wish > 1 else own


def _fate(policy: RestartPolicy, group: ReplicaGroup) -> str:
    match policy:
        case RestartPolicy.EXIT_CODE:
            return _CODES
        case RestartPolicy.NEVER:
            return _FINAL
        case RestartPolicy.ON_FAILURE:
            return _FAILURES
        case RestartPolicy.ALWAYS:
            return _ENDS if group.restart_policy_of_pods == RestartPolicy.ALWAYS.value else _FAILURES


def by_codes(job: TrainingJob, group: ReplicaGroup) -> bool:
    return _CODES in fates(job, group)
