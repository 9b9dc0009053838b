"""Whose a job is when others keep jobs of its kind, too: two operators would make every pod twice."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import CustomObject, Json, Resource
from tarragon.plan.desired import OWN_NAMES
from tarragon.plan.step import Settings

ADOPT_ANNOTATION = "tarragon.dev/adopt"
"""`true` on a job gives it to us, whoever else keeps its kind."""
OUR_NAME = "tarragon.dev/tarragon"
"""The managedBy that nobody else answers to."""
LEFT = "LeftToOtherOperator"


def is_left_to_others(spec: Json) -> bool:
    """As written: a job that we would find invalid may be right for whom it names, and is not ours to mark or fail."""
    manager = _manager(spec)
    return isinstance(manager, str) and manager not in OWN_NAMES


def keeper(kind: str, found: CustomObject, settings: Settings) -> str:
    """Who else keeps it, in words; empty when it is ours: it was from the beginning, or somebody has said so."""
    annotations = found.metadata.annotations
    if GENERATION_ANNOTATION in annotations or annotations.get(ADOPT_ANNOTATION) == "true":
        return ""
    return "" if _manager(found.spec) == OUR_NAME else settings.left_to.get(kind, "")


def left_alone(resource: Resource[CustomObject], found: CustomObject, to: str) -> Event:
    """Nothing of the job itself is touched."""
    metadata = found.metadata
    about = ObjectReference(api_version=resource.api_version, kind=resource.kind, key=metadata.key, uid=metadata.uid)
    message = f'left to {to}; the annotation {ADOPT_ANNOTATION}: "true" gives it to Tarragon'
    return Event(about=about, type="Normal", reason=LEFT, message=message, once=True)


def _manager(spec: Json) -> object:
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    return policy.get("managedBy") if isinstance(policy, Mapping) else None
