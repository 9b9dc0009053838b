"""Applies a reconcile's step: performs its writes in an order in which a crash between any two is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, get_args

from msgspec import convert

from tarragon.base.clock import Clock
from tarragon.client.concurrent_writes import run_all
from tarragon.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
)
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import Client, DeleteOptions
from tarragon.frameworks.dialect_detection import recorded_generation, recorded_in_status
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import PODS
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, OwnerReference, PartialObjectMetadata, Resource
from tarragon.operator.informers.create_backoff import is_rejected_by_server
from tarragon.operator.reconciler.generated import generated_content
from tarragon.plan.view.actions import (
    NAME_TAKEN,
    REFUSED,
    REFUSED_FOR_GATES,
    Actions,
    AnnotatePod,
    Create,
    Delete,
    Patch,
)

Operation = Literal["Create", "Delete"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

INITIAL_BATCH = 8
MAX_BATCH = 64
"""Creates start in small batches that double on success (slow start), as a quota that refuses one refuses all."""
_SUFFIX_LENGTH = len(" and 10000 more")


class CreateRefused(Exception):
    """A quota, a policy or a foreign object prevents a create; the message is meant for the job's user.

    `reason` is that of a `RejectedCreate`.
    """

    def __init__(self, create: Create, error: ApiError, reason: str = REFUSED) -> None:
        super().__init__(f"{error}; {create.consequence}" if create.consequence else str(error))
        self.name: str = create.body["metadata"]["name"]
        self.event_reason = f"FailedCreate{create.resource.kind}"
        self.reason = reason


class StatusDropped(ApiError):
    """The API server accepted a status but dropped Tarragon's part: another operator's CRD is installed for the kind.

    Continuing would treat every job as never admitted and delete its pods.
    """

    def __init__(self, definition: str) -> None:
        message = (
            f"the API server dropped status.tarragon: the CustomResourceDefinition of {definition} is not Tarragon's; "
            f"this job is on hold until Tarragon's is installed again (`tarragon docs install#upgrade`)"
        )
        status = {"kind": "Status", "status": "Failure", "code": 500, "message": message}
        super().__init__({**status, "details": {"retryAfterSeconds": 30}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext:
    """The dependencies of `apply`."""

    cluster: Client
    clock: Clock
    recorder: EventRecorder


async def apply(
    context: ApplyContext, framework: Resource[CustomObject], job: CustomObject, step: Actions
) -> Sequence[str]:
    """Performs the step's writes and returns the names of refused optional objects.

    Raises the first ApiError or Refused. Completed writes are not undone; the next reconcile sees them.
    """
    cluster, recorder = context.cluster, context.recorder
    key = job.metadata.key
    if step.metadata_patch is not None:
        await cluster.patch(framework, key, step.metadata_patch)
        await _record(recorder, step.events)
        return ()
    about = ObjectReference(api_version=job.api_version, kind=job.kind, key=key, uid=job.metadata.uid)
    if step.status_patch is not None:
        written = await cluster.patch(framework, key, step.status_patch, subresource="status")
        if step.status_patch["status"].get("tarragon") and not has_our_status(written):
            await _annotate_generation(cluster, framework, job, step.status_patch)
            error = StatusDropped(framework.full_name)
            await recorder.record(
                Event(
                    involved_object=about,
                    type="Warning",
                    reason="StatusNotKept",
                    message=error.summary,
                    is_lasting_state=True,
                )
            )
            raise error
    result = _StepResult()
    try:
        # The status written above already reflects these events, so no later reconcile would record them again. They
        # are recorded concurrently, because no write depends on them.
        async with _concurrently(_record(recorder, step.events)):
            await _write(cluster, step, result)
    except (ApiError, CreateRefused) as error:
        await _record(recorder, [*_refusal_events(about, error), *result.events(about)])
        raise
    await _record(recorder, result.events(about))
    return result.without


async def _annotate_generation(
    cluster: Client, framework: Resource[CustomObject], job: CustomObject, patch: JsonObject
) -> None:
    """Record the generation where no CRD drops it: without a record the job would be taken for another operator's."""
    generation = recorded_generation(job) or recorded_in_status(patch["status"])
    if generation is not None and GENERATION_ANNOTATION not in job.metadata.annotations:
        metadata = {"uid": job.metadata.uid, "annotations": {GENERATION_ANNOTATION: generation}}
        await cluster.patch(framework, job.metadata.key, {"metadata": metadata})


@asynccontextmanager
async def _concurrently(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` concurrently with the block and wait for it at the end; a cancellation of the block cancels it too."""
    task = asyncio.ensure_future(work)
    try:
        yield
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        await task


async def _write(cluster: Client, step: Actions, result: _StepResult) -> None:
    await run_all(_notify(cluster, notice, result) for notice in step.annotations)
    await run_all(_delete(cluster, delete, result) for delete in step.deletes)
    await run_all(_patch(cluster, patch) for patch in step.patches)
    await _create_all(cluster, step.creates, result)


def has_our_status(written: CustomObject) -> bool:
    """Whether the written status still has Tarragon's part."""
    return isinstance(written.status, dict) and bool(written.status.get("tarragon"))


def _refusal_events(about: ObjectReference, error: ApiError | CreateRefused) -> Iterator[Event]:
    if isinstance(error, CreateRefused):
        yield Event(involved_object=about, type="Warning", reason=error.event_reason, message=str(error))


async def _record(recorder: EventRecorder, events: Iterable[Event]) -> None:
    for event in events:
        await recorder.record(event)


class _StepResult:
    """Objects created and deleted in a step, by kind, and refused optional objects."""

    def __init__(self) -> None:
        self._names: dict[tuple[Operation, str], list[str]] = {}
        self._refused: list[CreateRefused] = []

    def note(self, doing: Operation, resource: Resource[Json], name: str) -> None:
        self._names.setdefault((doing, resource.kind), []).append(name)

    def note_refused(self, refused: CreateRefused) -> None:
        """Record a refused optional object."""
        self._refused.append(refused)

    @property
    def without(self) -> Sequence[str]:
        return [refused.name for refused in self._refused]

    def events(self, about: ObjectReference) -> Iterator[Event]:
        for refused in self._refused:
            yield from _refusal_events(about, refused)
        for doing in OPERATIONS:
            names = {
                # Natural order: worker-2 before worker-10.
                kind: sorted(found, key=lambda name: (len(name), name))
                for (done, kind), found in self._names.items()
                if done == doing
            }
            if names:
                yield summary_event(about, doing, names)


async def _notify(cluster: Client, notice: AnnotatePod, result: _StepResult) -> None:
    precondition = {"uid": notice.uid, "resourceVersion": notice.resource_version}
    patch = {"metadata": {**precondition, "annotations": dict(notice.annotations)}}
    try:
        await cluster.patch(PODS.with_model(PartialObjectMetadata), notice.pod, patch)
    except NotFound:
        return
    except Forbidden:
        if notice.fallback is not None:
            await _delete(cluster, notice.fallback, result)


async def _patch(cluster: Client, patch: Patch) -> None:
    with suppress(NotFound):  # the next reconcile creates it
        await cluster.patch(patch.resource, patch.key, patch.body)


async def _delete(cluster: Client, delete: Delete, result: _StepResult) -> None:
    options = DeleteOptions(
        uid=delete.uid,
        resource_version=delete.resource_version,
        propagation_policy="Background",
        grace_period_seconds=0 if delete.force else None,
    )
    try:
        await cluster.delete(delete.resource, delete.key, options)
    except NotFound:
        return
    result.note("Delete", delete.resource, delete.key.name)


async def _create_all(cluster: Client, creates: Iterable[Create], result: _StepResult) -> None:
    waiting = list(creates)
    size = INITIAL_BATCH
    while waiting:
        number = _next_batch(waiting, size)
        batch, waiting = waiting[:number], waiting[number:]
        await run_all(_create(cluster, create, result) for create in batch)
        # What a server accepts of one kind says nothing of another: a quota may be that of pods alone.
        is_same_kind = bool(waiting) and waiting[0].resource == batch[-1].resource
        size = min(MAX_BATCH, size * 2) if is_same_kind else INITIAL_BATCH


def _next_batch(waiting: Sequence[Create], most: int) -> int:
    """How many of the next creates may run concurrently: those of one kind, as a pod needs its Service."""
    first = waiting[0]
    if first.is_sequential:
        return 1
    ends = (
        number
        for number, create in enumerate(waiting[:most])
        if create.is_sequential or create.resource != first.resource
    )
    return next(ends, most)


async def _create(cluster: Client, create: Create, result: _StepResult) -> None:
    try:
        await _create_if_missing(cluster, create, result)
    except CreateRefused as refused:
        if not create.is_optional:
            raise
        result.note_refused(refused)


async def _create_if_missing(cluster: Client, create: Create, result: _StepResult) -> None:
    content = {} if create.generated is None else await generated_content(create.generated)
    try:
        await cluster.create(create.resource, {**create.body, **content})
    except AlreadyExists as error:
        if not create.ignores_existing:
            await _use_existing(cluster, create, error)
    except ApiError as error:
        if is_rejected_by_server(error):
            raise CreateRefused(create, error, _reason_of(create, error)) from error
        raise
    else:
        result.note("Create", create.resource, create.body["metadata"]["name"])


def _reason_of(create: Create, error: ApiError) -> str:
    """Return whether gates are the reason: the API server accepts every other name of a node."""
    is_gated = create.resource == PODS and any(cause.get("field") == "spec.nodeName" for cause in error.causes)
    return REFUSED_FOR_GATES if is_gated else REFUSED


async def _use_existing(cluster: Client, create: Create, error: AlreadyExists) -> None:
    """Keep the existing object if it is the job's own. Raises CreateRefused for another owner's, and Conflict."""
    metadata: JsonObject = create.body["metadata"]
    key = Key(metadata.get("namespace", ""), metadata["name"])
    try:
        existing = await cluster.get(create.resource.with_model(PartialObjectMetadata), key)
    except Forbidden as forbidden:
        raise CreateRefused(create, forbidden) from forbidden
    owner = convert(metadata["ownerReferences"][0], OwnerReference).identity(key.namespace)
    if existing.metadata.controller_identity != owner:
        raise CreateRefused(create, name_conflict(create, error), NAME_TAKEN) from error
    if existing.metadata.is_being_deleted:
        # The job's own object, being deleted: its name will be free soon.
        raise name_conflict(create, error) from error
    if create.overwrites_own:
        await cluster.patch(create.resource, key, _takeover_patch(create.body))


def _takeover_patch(body: JsonObject) -> JsonObject:
    """The patch that makes an object of the job, which perhaps another operator created, equal to this body."""
    content = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    return {"metadata": {"labels": body["metadata"]["labels"]}, **content}


def name_conflict(create: Create, error: ApiError) -> Conflict:
    """The conflict with an object that belongs to another owner, or that is being deleted."""
    name = f"{create.resource.plural} {create.body['metadata']['name']}"
    return Conflict(
        {
            **error.status,
            "reason": "Conflict",
            "message": f"{name} already exists; waiting until it is deleted",
        }
    )


def summary_event(about: ObjectReference, doing: Operation, names: Mapping[str, Sequence[str]]) -> Event:
    """One event for all objects that a step created or deleted, given by kind; older operators write one per object.

    Its reason names the pods, if there are any. Services that have the names of the pods are only counted.
    """
    leading = PODS.kind if PODS.kind in names else next(iter(names))
    parts: list[str] = []
    for kind in sorted(names, key=lambda kind: kind != leading):
        found = names[kind]
        kind_name = _kind_name(about, kind)
        plural = f"{kind_name.lower()}{'' if len(found) == 1 else 's'}"
        prefix = f"{f'{doing}d ' if kind == leading else ''}{plural}: "
        is_alike = kind != leading and found == names[leading]
        listed = prefix + _join_up_to_limit(found, MESSAGE_LIMIT // len(names) - len(prefix) - len("; "))
        parts.append(f"{plural} of the same names" if is_alike else listed)
    return Event(
        involved_object=about,
        type="Normal",
        reason=f"Successful{doing}{_kind_name(about, leading)}",
        message="; ".join(parts),
    )


def _kind_name(about: ObjectReference, kind: str) -> str:
    return "Job" if kind == about.kind else kind


def _join_up_to_limit(names: Sequence[str], room: int) -> str:
    room -= _SUFFIX_LENGTH
    shown = 0
    for name in names:
        room -= len(name) + len(", ")
        if room < 0:
            break
        shown += 1
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest else "")
