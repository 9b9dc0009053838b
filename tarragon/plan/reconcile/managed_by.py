"""Whose a job is when others keep its kind, too, or have begun it: two operators would make every pod twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.frameworks.plugin import Dialect
from tarragon.job.encoding import read_status
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.kube.core import Pod
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import CustomObject, Json, OwnerIdentity, Resource
from tarragon.plan.objects.desired import OWN_NAMES
from tarragon.plan.status.patch import status_of
from tarragon.plan.view.actions import Observed
from tarragon.plan.view.job_view import is_of

OUR_NAME = "tarragon.dev/tarragon"
"""The managedBy that nobody else answers to."""
LEFT = "LeftToOtherOperator"
WHOEVER_BEGAN_IT = "the operator that has begun it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Who else keeps a job, and what makes it ours, in words."""

    name: str
    remedy: str = f'the annotation {ADOPT_ANNOTATION}: "true" gives it to Tarragon'


BATCH_JOBS = Keeper(
    name="its batch Jobs, which would run every replica a second time beside Tarragon's pods",
    remedy="let them end, or delete the job and them, and submit it anew",
)


def is_left_to_others(spec: Json) -> bool:
    """As written: a job that we would find invalid may be right for whom it names, and is not ours to mark or fail."""
    manager = _manager(spec)
    return isinstance(manager, str) and manager not in OWN_NAMES


def keeper(kind: str, observed: Observed) -> Keeper | None:
    """None when it is ours: it was from the beginning, or somebody has said so, and nothing runs that would go on."""
    found, settings = observed.object, observed.settings
    annotations = found.metadata.annotations
    if GENERATION_ANNOTATION in annotations:
        return None
    if _is_run_by_batch_jobs(observed):
        return BATCH_JOBS
    if annotations.get(ADOPT_ANNOTATION) == "true" or _manager(found.spec) == OUR_NAME:
        return None
    began = WHOEVER_BEGAN_IT if is_begun(observed) and not settings.adopts else ""
    other = settings.left_to.get(kind, "") or began
    return Keeper(name=other) if other else None


def is_begun(observed: Observed) -> bool:
    """By somebody else: nothing on it is ours, but there are pods of its, or a status."""
    found = observed.object
    if GENERATION_ANNOTATION in found.metadata.annotations or "tarragon" in status_of(found):
        return False
    return has_foreign_status(found) or any(is_of(pod, found.as_owner) for pod in observed.pods)


def has_foreign_status(found: CustomObject) -> bool:
    """Which no version of ours has written. Client libraries write the names of its fields with nothing in them."""
    status = status_of(found)
    return "tarragon" not in status and any(status.values())


def is_for_batch_jobs(found: CustomObject, dialect: Dialect | None) -> bool:
    """As far as the job alone shows it: what runs for it are batch Jobs, and no pods of its own."""
    if dialect is None or not dialect.had_batch_jobs or GENERATION_ANNOTATION in found.metadata.annotations:
        return False
    return has_foreign_status(found) and not read_status(found.status).phase.is_final


def _is_run_by_batch_jobs(observed: Observed) -> bool:
    """Those make their pods anew, whatever else there is: the job would have each of its pods twice."""
    found, taken = observed.object, observed.taken
    if taken.dialect is None or taken.dialect.has_conditions or not has_foreign_status(found):
        return False
    if read_status(found.status).phase.is_final or any(_lives(pod, found.as_owner) for pod in observed.pods):
        return False
    if is_for_batch_jobs(found, taken.dialect):
        return True
    job, replica = taken.job or taken.guess, taken.dialect.names.replica
    return job is not None and any(
        replica(job, key.name) is not None and _is_of_a_batch_job(pod)
        for key, pod in observed.pods_there.items()
        if key.namespace == found.metadata.namespace
    )


def _lives(pod: Pod, owner: OwnerIdentity) -> bool:
    return is_of(pod, owner) and not pod.is_finished


def _is_of_a_batch_job(pod: Pod) -> bool:
    owner = pod.metadata.controlled_by
    return owner is not None and (owner.group, owner.kind) == ("batch", "Job")


def is_to_be_asked_for(found: CustomObject) -> bool:
    """As far as the job alone shows it: somebody else's work goes on, and nobody has given it to us."""
    annotations = found.metadata.annotations
    is_given = GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true"
    return not is_given and has_foreign_status(found) and not read_status(found.status).phase.is_final


def left_alone(resource: Resource[CustomObject], found: CustomObject, to: Keeper) -> list[Event]:
    """Nothing of the job itself is touched; of one that is over, nothing is to be said."""
    if read_status(found.status).phase.is_final:
        return []
    metadata = found.metadata
    about = ObjectReference(api_version=resource.api_version, kind=resource.kind, key=metadata.key, uid=metadata.uid)
    message = f"left to {to.name}; {to.remedy}"
    return [Event(about=about, type="Normal", reason=LEFT, message=message, once=True)]


def _manager(spec: Json) -> object:
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    return policy.get("managedBy") if isinstance(policy, Mapping) else None
