"""Decides which of a job's other objects to create and to patch: ConfigMaps, Secrets, roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.frameworks.owned_objects import OwnedContent, OwnedObject, Upkeep
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.desired import JobBlueprint, build_owned_object, log_config_maps
from tarragon.plan.view.actions import Create, Patch
from tarragon.plan.view.job_view import JobView

PLAIN_LOGS_MESSAGE = "the job runs without it and logs plain text"


def creates_before_pods(view: JobView, plan: JobBlueprint) -> Iterator[Create]:
    """Yield creates for all objects that pods need. Existing ones are not looked up: creating them again is rare."""
    for wanted in view.framework.owned_objects(view.framework_view):
        if wanted.upkeep is not Upkeep.KEEP_CURRENT:
            yield _create(plan, wanted)
    for wanted in log_config_maps(plan):
        yield _create(plan, wanted, consequence=PLAIN_LOGS_MESSAGE)


def creates_of_watched(view: JobView) -> Iterator[Create]:
    """Yield creates for the objects that are kept current and that do not exist."""
    for wanted in _kept_current(view):
        if _existing(view, wanted) is None:
            yield _create(view.blueprint, wanted)


def patches_of_watched(view: JobView) -> Iterator[Patch]:
    """Yield patches for the objects that are kept current and that differ from what they should be."""
    for wanted in _kept_current(view):
        existing = _existing(view, wanted)
        if existing is None or existing.metadata.is_being_deleted:
            continue
        content = {name: value for name, value in wanted.body.items() if name != "metadata"}
        changes = create_merge_patch({name: getattr(existing, name) for name in content}, content)
        if changes:
            found = existing.metadata
            precondition = {"uid": found.uid, "resourceVersion": found.resource_version}
            yield Patch(resource=wanted.resource, key=found.key, body={"metadata": precondition, **changes})


def unreadable_kinds(view: JobView) -> Sequence[str]:
    """Return the kinds of objects that the job needs kept current and that the operator may not watch."""
    unreadable = view.observed.unreadable_kinds
    if not unreadable:
        return ()
    return sorted({wanted.resource.full_name for wanted in _kept_current(view)} & unreadable)


def _kept_current(view: JobView) -> Iterator[OwnedObject]:
    wanted_objects = view.framework.owned_objects(view.framework_view)
    return (wanted for wanted in wanted_objects if wanted.upkeep is Upkeep.KEEP_CURRENT)


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
