"""Which operator manages a job when several handle its kind: two operators would create every pod twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.plugin import Dialect
from tarragon.job import conditions
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.job.phase import Phase
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import Pod
from tarragon.kube.event import Event, reference_to
from tarragon.kube.meta import CustomObject, Json, OwnerIdentity, Resource
from tarragon.plan.objects.desired import OWN_MANAGED_BY
from tarragon.plan.status.patch import status_of
from tarragon.plan.view.actions import ObservedJob
from tarragon.plan.view.job_view import is_controlled_by

TARRAGON = "tarragon.dev/tarragon"
"""The value of managedBy that no other operator handles."""
LEFT_TO_OTHER_OPERATOR = "LeftToOtherOperator"
STARTING_OPERATOR = "the operator that started it"


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
    manager = _manager(spec)
    return manager if isinstance(manager, str) and manager not in OWN_MANAGED_BY else None


def other_manager(kind: str, observed: ObservedJob) -> OtherManager | None:
    """Return the other manager of the job; None when Tarragon manages it.

    That is so if Tarragon has managed the job from the start, or a user has handed it over, and no batch Jobs of an old
    operator still run it.
    """
    found, settings = observed.object, observed.settings
    annotations = found.metadata.annotations
    if recorded_generation(found) is not None or observed.was_managed or _has_our_condition(status_of(found)):
        return None
    if _is_run_by_batch_jobs(observed):
        return BATCH_JOBS_MANAGER
    if annotations.get(ADOPT_ANNOTATION) == "true" or _manager(found.spec) == TARRAGON:
        return None
    starter = STARTING_OPERATOR if is_started_by_other(observed) and not settings.adopts_jobs else ""
    other = settings.other_managers.get(kind, "") or starter
    return OtherManager(name=other) if other else None


def is_started_by_other(observed: ObservedJob) -> bool:
    """Whether another operator started the job: it has pods or a status, but nothing that Tarragon wrote."""
    found = observed.object
    if observed.was_managed or GENERATION_ANNOTATION in found.metadata.annotations or has_our_fields(status_of(found)):
        return False
    return has_foreign_status(found) or any(is_controlled_by(pod, found.owner_identity) for pod in observed.pods)


def has_foreign_status(found: CustomObject) -> bool:
    """Whether the status was written by another operator. Empty fields do not count: client libraries write them."""
    status = status_of(found)
    return not has_our_fields(status) and any(status.values())


def has_our_fields(status: Mapping[str, Json]) -> bool:
    """Whether Tarragon wrote the status.

    A program that knows only the fields of Kubeflow's operator loses `tarragon` when it writes a status, but keeps the
    condition Admitted, which no other operator has.
    """
    return "tarragon" in status or _has_our_condition(status)


def _has_our_condition(status: Mapping[str, Json]) -> bool:
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


def _is_run_by_batch_jobs(observed: ObservedJob) -> bool:
    """Whether batch Jobs still run the replicas. They would recreate their pods: each replica would run twice."""
    found, decoded = observed.object, observed.decoded
    if decoded.dialect is None or not has_foreign_status(found) or recorded_status(found).phase.is_final:
        return False
    if is_run_by_batch_jobs(found, decoded.dialect):
        return True
    if decoded.dialect.has_conditions or any(_is_live(pod, found.owner_identity) for pod in observed.pods):
        return False
    job, replica = decoded.job or decoded.partial_job, decoded.dialect.names.replica_of
    return job is not None and any(
        replica(job, key.name) is not None and _is_of_a_batch_job(pod)
        for key, pod in observed.pods_by_key.items()
        if key.namespace == found.metadata.namespace
    )


def _is_live(pod: Pod, owner: OwnerIdentity) -> bool:
    return is_controlled_by(pod, owner) and not pod.is_finished


def _is_of_a_batch_job(pod: Pod) -> bool:
    owner = pod.metadata.controller_identity
    return owner is not None and (owner.group, owner.kind) == ("batch", "Job")


def needs_adoption(found: CustomObject) -> bool:
    """Whether another operator still runs the job and no user has handed it over, as far as the job object shows it."""
    annotations = found.metadata.annotations
    is_handed_over = GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true"
    return not is_handed_over and has_foreign_status(found) and not recorded_status(found).phase.is_final


def left_to_other_events(resource: Resource[CustomObject], found: CustomObject, manager: OtherManager) -> list[Event]:
    """Return the event that says that the job is left to its other manager; none for a finished job."""
    if recorded_status(found).phase.is_final:
        return []
    message = f"left to {manager.name}; {manager.remedy}"
    return [
        Event(
            involved_object=reference_to(resource, found),
            type="Normal",
            reason=LEFT_TO_OTHER_OPERATOR,
            message=message,
            is_lasting_state=True,
        )
    ]


def _manager(spec: Json) -> object:
    return _run_policy(spec).get("managedBy")


def _run_policy(spec: Json) -> Mapping[str, Json]:
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    return policy if isinstance(policy, Mapping) else {}
