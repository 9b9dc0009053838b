"""What a bad end of a replica means to its job, in a word that can be compared between generations."""

from __future__ import annotations

from tarragon.job.model import ReplicaGroup, RestartPolicy, TrainingJob

_CODES, _FINAL, _FAILURES, _ENDS = "codes", "final", "failures", "ends"
WORDS = {
    _CODES: "its exit code tells whether a failure is final",
    _FINAL: "any failure fails the job",
    _FAILURES: "it is started again after every failure",
    _ENDS: "it is started again however it ends",
}


BOUND = "a backoffLimit bounds it"
_REMEDIES = {_CODES: "end with 138 what is to be tried again", _FAILURES: BOUND}


def remedy(fate: str, *, has_limit: bool) -> str:
    """`has_limit` where the generation has a backoffLimit."""
    found = _REMEDIES.get(fate, "")
    return "" if found == BOUND and not has_limit else found


def fates(job: TrainingJob, group: ReplicaGroup) -> tuple[str, str]:
    """What a bad end means: of the one that decides the job, where it is one of these, and of the others."""
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
