"""Carrying out a step: the writes, in the order that makes a crash between any two of them harmless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from msgspec import convert

from tarragon.base.clock import Clock
from tarragon.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
)
from tarragon.client.port import Cluster, DeleteOptions
from tarragon.kube.core import PODS
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import AnyObject, CustomObject, Json, JsonObject, Key, OwnerReference, Resource
from tarragon.operator.queue.concurrent_writes import all_of
from tarragon.operator.queue.refused_writes import is_refusal
from tarragon.operator.reconciler.recorder import Doing, Recorder, summary
from tarragon.plan.view.actions import NAME_TAKEN, REFUSED, Create, Delete, Notice, Patch, Step

FIRST_BATCH = 4
LARGEST_BATCH = 64
"""Creates begin with a few and double as long as all go well: a quota that refuses the first refuses the rest, too."""


class Refused(Exception):
    """A quota, a policy or somebody else's object does not let it be made; the job's user should read the words.

    `reason` is one of plan.step: REFUSED or NAME_TAKEN.
    """

    def __init__(self, create: Create, error: ApiError, reason: str = REFUSED) -> None:
        super().__init__(f"{error}; {create.without}" if create.without else str(error))
        self.name: str = create.body["metadata"]["name"]
        self.event = f"FailedCreate{create.resource.kind}"
        self.reason = reason


class NotKept(ApiError):
    """The server took a status and dropped our part of it: the kind's definition is somebody else's.

    To go on would be to take every job for one that was never admitted, and to end its pods.
    """

    def __init__(self, definition: str) -> None:
        message = (
            f"status.tarragon is not kept: another operator's definition of {definition} has replaced Tarragon's; "
            f"nothing is done until deploy/crd-{definition}.yaml is applied again"
        )
        status = {"kind": "Status", "status": "Failure", "code": 500, "message": message}
        super().__init__({**status, "details": {"retryAfterSeconds": 30}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What it takes to act."""

    cluster: Cluster
    clock: Clock
    recorder: Recorder


async def apply(means: Means, framework: Resource[CustomObject], job: CustomObject, step: Step) -> Sequence[str]:
    """The names of what was refused and the job does without.

    Raises the first ApiError, or Refused; what was done stays done, and the next step is decided on what is then.
    """
    cluster, recorder = means.cluster, means.recorder
    key = job.metadata.key
    if step.mark is not None:
        await cluster.patch(framework, key, step.mark)
        return ()
    about = ObjectReference(api_version=job.api_version, kind=job.kind, key=key, uid=job.metadata.uid)
    if step.status is not None:
        written = await cluster.patch(framework, key, step.status, subresource="status")
        if step.status["status"].get("tarragon") and not is_kept(written):
            error = NotKept(framework.full_name)
            await recorder.record(
                Event(about=about, type="Warning", reason="StatusNotKept", message=error.what, once=True)
            )
            raise error
    done = _Done()
    try:
        # News come with the status that they are about: once it says so, no later step will tell them again. Nothing
        # waits for them.
        async with _meanwhile(_tell(recorder, step.events)):
            await _carry_out(cluster, step, done)
    except (ApiError, Refused) as error:
        await _tell(recorder, [*_refusal(about, error), *done.events(about)])
        raise
    await _tell(recorder, done.events(about))
    return done.without


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Beside what is done here, and to its end; who is to stop here stops that as well."""
    beside = asyncio.ensure_future(work)
    try:
        yield
    except asyncio.CancelledError:
        beside.cancel()
        raise
    finally:
        await beside


async def _carry_out(cluster: Cluster, step: Step, done: _Done) -> None:
    await all_of(_notify(cluster, notice, done) for notice in step.notices)
    await all_of(_delete(cluster, delete, done) for delete in step.deletes)
    await all_of(_patch(cluster, patch) for patch in step.patches)
    await _create_all(cluster, step.creates, done)


def is_kept(written: CustomObject) -> bool:
    """Whether our own part of the status is there."""
    return isinstance(written.status, dict) and bool(written.status.get("tarragon"))


def _refusal(about: ObjectReference, error: ApiError | Refused) -> Iterator[Event]:
    if isinstance(error, Refused):
        yield Event(about=about, type="Warning", reason=error.event, message=str(error))


async def _tell(recorder: Recorder, news: Iterable[Event]) -> None:
    for event in news:
        await recorder.record(event)


class _Done:
    """What was made and deleted in a step, by kind."""

    def __init__(self) -> None:
        self._names: dict[tuple[Doing, str], list[str]] = {}
        self._refused: list[Refused] = []

    def note(self, doing: Doing, resource: Resource[Json], name: str) -> None:
        self._names.setdefault((doing, resource.kind), []).append(name)

    def note_refused(self, refused: Refused) -> None:
        """Of what the job does without."""
        self._refused.append(refused)

    @property
    def without(self) -> Sequence[str]:
        return [refused.name for refused in self._refused]

    def events(self, about: ObjectReference) -> Iterator[Event]:
        for refused in self._refused:
            yield from _refusal(about, refused)
        for (doing, kind), names in self._names.items():
            # As people count: worker-2 before worker-10.
            yield summary(about, doing, kind, sorted(names, key=lambda name: (len(name), name)))


async def _notify(cluster: Cluster, notice: Notice, done: _Done) -> None:
    precondition = {"uid": notice.uid, "resourceVersion": notice.resource_version}
    patch = {"metadata": {**precondition, "annotations": dict(notice.annotations)}}
    try:
        await cluster.patch(PODS.reading(AnyObject), notice.pod, patch)
    except NotFound:
        return
    except Forbidden:
        if notice.otherwise is not None:
            await _delete(cluster, notice.otherwise, done)


async def _patch(cluster: Cluster, patch: Patch) -> None:
    with suppress(NotFound):  # the next look makes it anew
        await cluster.patch(patch.resource, patch.key, patch.body)


async def _delete(cluster: Cluster, delete: Delete, done: _Done) -> None:
    options = DeleteOptions(
        uid=delete.uid,
        resource_version=delete.resource_version,
        propagation="Background",
        grace_seconds=0 if delete.at_once else None,
    )
    try:
        await cluster.delete(delete.resource, delete.key, options)
    except NotFound:
        return
    done.note("Delete", delete.resource, delete.key.name)


async def _create_all(cluster: Cluster, creates: Iterable[Create], done: _Done) -> None:
    waiting = list(creates)
    size = FIRST_BATCH
    while waiting:
        number = _next_batch(waiting, size)
        batch, waiting = waiting[:number], waiting[number:]
        await all_of(_create(cluster, create, done) for create in batch)
        size = min(LARGEST_BATCH, size * 2)


def _next_batch(waiting: Sequence[Create], most: int) -> int:
    """How many of the next ones may be made at once."""
    if waiting[0].alone:
        return 1
    return next((number for number, create in enumerate(waiting[:most]) if create.alone), most)


async def _create(cluster: Cluster, create: Create, done: _Done) -> None:
    try:
        await _make(cluster, create, done)
    except Refused as refused:
        if not create.may_be_refused:
            raise
        done.note_refused(refused)


async def _make(cluster: Cluster, create: Create, done: _Done) -> None:
    try:
        await cluster.create(create.resource, create.body)
    except AlreadyExists as error:
        if create.is_surely_ours:
            return
        metadata: JsonObject = create.body["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        found = await cluster.get(create.resource.reading(AnyObject), key)
        owner = convert(metadata["ownerReferences"][0], OwnerReference).identity(key.namespace)
        if found.metadata.controlled_by != owner:
            raise Refused(create, name_is_taken(create, error), NAME_TAKEN) from error
        if found.metadata.is_ending:
            # Ours, and on its way out: its name is free in a moment.
            raise name_is_taken(create, error) from error
    except ApiError as error:
        if is_refusal(error):
            raise Refused(create, error) from error
        raise
    else:
        done.note("Create", create.resource, create.body["metadata"]["name"])


def name_is_taken(create: Create, error: ApiError) -> Conflict:
    """By an object that is not this job's, or is on its way out."""
    name = f"{create.resource.plural} {create.body['metadata']['name']}"
    return Conflict(
        {
            **error.status,
            "reason": "Conflict",
            "message": f"{name} is there already; waiting until it is gone",
        }
    )
