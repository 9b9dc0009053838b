"""Which operator manages a job when several handle its kind: two operators would create every pod twice."""

from __future__ import annotations

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.job.status_encoding import recorded_status, status_of
from tarragon.kube.core import Pod
from tarragon.kube.event import Event, reference_to
from tarragon.kube.meta import CustomObject, OwnerIdentity, Resource
from tarragon.plan.reconcile.manager_on_record import (
    BATCH_JOBS_MANAGER,
    LEFT_TO_OTHER_OPERATOR,
    OtherManager,
    has_foreign_status,
    has_our_condition,
    has_our_fields,
    is_run_by_batch_jobs,
    managing_operator,
)
from tarragon.plan.view.actions import ObservedJob
from tarragon.plan.view.job_view import is_controlled_by

TARRAGON = "tarragon.dev/tarragon"
"""The value of managedBy that no other operator handles."""
STARTING_OPERATOR = "the operator that started it"


def other_manager(kind: str, observed: ObservedJob) -> OtherManager | None:
    """Return the other manager of the job; None when Tarragon manages it.

    That is so if Tarragon has managed the job from the start, or a user has handed it over, and no batch Jobs of an old
    operator still run it.
    """
    found, settings = observed.object, observed.settings
    annotations = found.metadata.annotations
    if recorded_generation(found) is not None or observed.was_managed or has_our_condition(status_of(found)):
        return None
    if _is_run_by_batch_jobs(observed):
        return BATCH_JOBS_MANAGER
    if annotations.get(ADOPT_ANNOTATION) == "true" or managing_operator(found.spec) == TARRAGON:
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
