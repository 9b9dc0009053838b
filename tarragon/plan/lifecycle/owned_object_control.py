"""Decides which of a job's other objects to create and to patch: ConfigMaps, Secrets, roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from tarragon.frameworks.owned_objects import MOUNTED_ANNOTATION, OwnedContent, OwnedObject, Upkeep
from tarragon.kube.codec import encode
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.desired import JobBlueprint, build_owned_object, log_config_maps
from tarragon.plan.view.actions import AnnotatePod, Create, Patch
from tarragon.plan.view.job_view import JobView
from tarragon.plan.view.stalls import CREATING, POD_NOT_PREPARED

_DIGEST_LENGTH = 16
_WAITS_FOR_VOLUMES = frozenset({POD_NOT_PREPARED, CREATING})
"""The reasons of stalls that a missing Secret may have caused. Kubelets say no more."""
PLAIN_LOGS_MESSAGE = "the job runs without it and logs plain text"


def creates_before_pods(view: JobView, plan: JobBlueprint) -> Iterator[Create]:
    """Yield creates for all objects that pods need. Existing ones are not looked up: creating them again is rare."""
    for wanted in view.owned_objects:
        if wanted.upkeep is not Upkeep.KEEP_CURRENT:
            yield _create(plan, wanted)
    for wanted in log_config_maps(plan):
        yield _create(plan, wanted, consequence=PLAIN_LOGS_MESSAGE)


def creates_of_watched(view: JobView) -> Iterator[Create]:
    """Yield creates for the objects that are kept current and that do not exist."""
    for wanted in _kept_current(view):
        if _existing(view, wanted) is None:
            yield _create(view.blueprint, wanted)


def creates_of_unseen(view: JobView) -> Iterator[Create]:
    """Yield creates for the objects that the operator may not read, while a pod waits for its volumes.

    The object of an earlier job of this name may have been there when the pods were created, and be collected by now.
    """
    if any(stall.reason in _WAITS_FOR_VOLUMES and stall.is_due(view.now) for stall in view.stalls.values()):
        unseen = (wanted for wanted in view.owned_objects if wanted.upkeep is Upkeep.CREATE_UNSEEN)
        yield from (_create(view.blueprint, wanted) for wanted in unseen)


def patches_of_watched(view: JobView) -> Iterator[Patch]:
    """Yield patches for the objects that are kept current and that differ from what they should be."""
    for wanted in _kept_current(view):
        existing = _existing(view, wanted)
        if existing is None or existing.metadata.is_being_deleted:
            continue
        changes = _changes(existing, wanted)
        if changes:
            found = existing.metadata
            precondition = {"uid": found.uid, "resourceVersion": found.resource_version}
            yield Patch(resource=wanted.resource, key=found.key, body={"metadata": precondition, **changes})


def notices_of_changes(view: JobView) -> Iterator[AnnotatePod]:
    """Yield annotations for the pods that must see a change of a mounted object at once.

    A kubelet writes the files of a pod again when the pod changes, else only within a minute or two. The object comes
    first: what the annotation says is what the API server already has.
    """
    for wanted in _kept_current(view):
        existing = _existing(view, wanted)
        if not wanted.urgent_for or existing is None or _changes(existing, wanted):
            continue
        note = {MOUNTED_ANNOTATION: sha256(encode(_content(wanted))).hexdigest()[:_DIGEST_LENGTH]}
        for replica, member in view.members.items():
            found = member.pod.metadata
            is_noted = note.items() <= found.annotations.items()
            if replica.type in wanted.urgent_for and member.is_pod_running and not is_noted:
                yield AnnotatePod(
                    pod=found.key, uid=found.uid, resource_version=found.resource_version, annotations=note
                )


def _content(wanted: OwnedObject) -> JsonObject:
    return {name: value for name, value in wanted.body.items() if name != "metadata"}


def _changes(existing: OwnedContent, wanted: OwnedObject) -> JsonObject:
    content = _content(wanted)
    # Null and an empty list or map are the same.
    found = {name: getattr(existing, name) or type(value)() for name, value in content.items()}
    changes: JsonObject = create_merge_patch(found, content)
    return changes


def unreadable_kinds(view: JobView) -> Sequence[str]:
    """Return the kinds of objects that the job needs kept current and that the operator may not watch."""
    unreadable = view.observed.unreadable_kinds
    if not unreadable:
        return ()
    return sorted({wanted.resource.full_name for wanted in _kept_current(view)} & unreadable)


def _kept_current(view: JobView) -> Iterator[OwnedObject]:
    return (wanted for wanted in view.owned_objects if wanted.upkeep is Upkeep.KEEP_CURRENT)


def _existing(view: JobView, wanted: OwnedObject) -> OwnedContent | None:
    return view.observed.owned_objects.get((wanted.resource.full_name, wanted.body["metadata"]["name"]))


def _create(plan: JobBlueprint, wanted: OwnedObject, *, consequence: str = "") -> Create:
    body: JsonObject = build_owned_object(plan, wanted)
    return Create(
        resource=wanted.resource,
        body=body,
        ignores_existing=wanted.upkeep in {Upkeep.UNIQUE, Upkeep.CREATE_UNSEEN},
        is_sequential=True,
        is_optional=bool(consequence),
        consequence=consequence,
        generated=wanted.generated,
        overwrites_own=wanted.upkeep is Upkeep.KEEP_CURRENT,
    )
