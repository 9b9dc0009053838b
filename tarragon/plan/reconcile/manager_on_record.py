"""What a job object alone shows of the operator that manages it. The command line reads it, which sees nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.frameworks.plugin import Dialect
from tarragon.job import conditions
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION, OWN_MANAGED_BY
from tarragon.job.phase import Phase
from tarragon.job.status_encoding import recorded_status, status_of
from tarragon.kube.meta import CustomObject, Json

LEFT_TO_OTHER_OPERATOR = "LeftToOtherOperator"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherManager:
    """The other manager of a job, and how to hand the job over to Tarragon, as words for users."""

    name: str
    remedy: str = f'set the annotation {ADOPT_ANNOTATION}: "true" to hand it over'


BATCH_JOBS_MANAGER = OtherManager(
    name="its batch Jobs, which would run every replica a second time beside Tarragon's pods",
    remedy="wait until they end, or delete them and the job and submit the job again",
)


def is_managed_by_other(spec: Json) -> bool:
    """Whether managedBy names another operator. Reads the spec as written: it may be invalid for us and valid there."""
    return named_manager(spec) is not None


def named_manager(spec: Json) -> str | None:
    """Return the other operator that managedBy names; None if it names none, or Tarragon."""
    manager = managing_operator(spec)
    return manager if isinstance(manager, str) and manager not in OWN_MANAGED_BY else None


def has_foreign_status(found: CustomObject) -> bool:
    """Whether the status was written by another operator. Empty fields do not count: client libraries write them."""
    status = status_of(found)
    return not has_our_fields(status) and any(status.values())


def has_our_fields(status: Mapping[str, Json]) -> bool:
    """Whether Tarragon wrote the status.

    A program that knows only the fields of Kubeflow's operator loses `tarragon` when it writes a status, but keeps the
    condition Admitted, which no other operator has.
    """
    return "tarragon" in status or has_our_condition(status)


def has_our_condition(status: Mapping[str, Json]) -> bool:
    found = status.get("conditions")
    return any(
        isinstance(each, Mapping) and each.get("type") == conditions.ADMITTED
        for each in (found if isinstance(found, list) else ())
    )


def is_run_by_batch_jobs(found: CustomObject, dialect: Dialect | None) -> bool:
    """Whether batch Jobs run the replicas instead of the job's own pods, as far as the job object alone shows it."""
    if dialect is None or not dialect.used_batch_jobs or GENERATION_ANNOTATION in found.metadata.annotations:
        return False
    return has_foreign_status(found) and not (recorded_status(found).phase.is_final or _is_suspended(found))


def _is_suspended(found: CustomObject) -> bool:
    """Whether the other operator has suspended the job, and with it the batch Jobs, which only that operator resumes.

    While the spec and the status differ, a suspension or a resumption is under way.
    """
    return _run_policy(found.spec).get("suspend") is True and recorded_status(found).phase is Phase.SUSPENDED


def needs_adoption(found: CustomObject) -> bool:
    """Whether another operator still runs the job and no user has handed it over, as far as the job object shows it."""
    annotations = found.metadata.annotations
    is_handed_over = GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true"
    return not is_handed_over and has_foreign_status(found) and not recorded_status(found).phase.is_final


def managing_operator(spec: Json) -> object:
    return _run_policy(spec).get("managedBy")


def _run_policy(spec: Json) -> Mapping[str, Json]:
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    return policy if isinstance(policy, Mapping) else {}
