"""Whose a job is when others keep its kind, too, or have begun it: two operators would make every pod twice."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.job.encoding import read_status
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import CustomObject, Json, Resource
from tarragon.plan.desired import OWN_NAMES
from tarragon.plan.scene import is_of
from tarragon.plan.step import Observed
from tarragon.plan.written import status_of

OUR_NAME = "tarragon.dev/tarragon"
"""The managedBy that nobody else answers to."""
LEFT = "LeftToOtherOperator"
WHOEVER_BEGAN_IT = "the operator that has begun it"


def is_left_to_others(spec: Json) -> bool:
    """As written: a job that we would find invalid may be right for whom it names, and is not ours to mark or fail."""
    manager = _manager(spec)
    return isinstance(manager, str) and manager not in OWN_NAMES


def keeper(kind: str, observed: Observed) -> str:
    """Who else keeps it, in words; empty when it is ours: it was from the beginning, or somebody has said so."""
    found, settings = observed.object, observed.settings
    annotations = found.metadata.annotations
    if GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true":
        return ""
    if _manager(found.spec) == OUR_NAME:
        return ""
    began = WHOEVER_BEGAN_IT if is_begun(observed) and not settings.adopts else ""
    return settings.left_to.get(kind, "") or began


def is_begun(observed: Observed) -> bool:
    """By somebody else: nothing on it is ours, but there are pods of its, or a status."""
    found = observed.object
    if GENERATION_ANNOTATION in found.metadata.annotations or "tarragon" in status_of(found):
        return False
    return has_foreign_status(found) or any(is_of(pod, found.metadata.uid) for pod in observed.pods)


def has_foreign_status(found: CustomObject) -> bool:
    """Which no version of ours has written. Client libraries write the names of its fields with nothing in them."""
    status = status_of(found)
    return "tarragon" not in status and any(status.values())


def is_to_be_asked_for(found: CustomObject) -> bool:
    """As far as the job alone shows it: somebody else's work goes on, and nobody has given it to us."""
    annotations = found.metadata.annotations
    is_given = GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true"
    return not is_given and has_foreign_status(found) and not read_status(found.status).phase.is_final


def left_alone(resource: Resource[CustomObject], found: CustomObject, to: str) -> list[Event]:
    """Nothing of the job itself is touched; of one that is over, nothing is to be said."""
    if read_status(found.status).phase.is_final:
        return []
    metadata = found.metadata
    about = ObjectReference(api_version=resource.api_version, kind=resource.kind, key=metadata.key, uid=metadata.uid)
    message = f'left to {to}; the annotation {ADOPT_ANNOTATION}: "true" gives it to Tarragon'
    return [Event(about=about, type="Normal", reason=LEFT, message=message, once=True)]


def _manager(spec: Json) -> object:
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    return policy.get("managedBy") if isinstance(policy, Mapping) else None
