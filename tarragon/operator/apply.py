"""Carrying out a step: the writes, in the order that makes a crash between any two of them harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus

from tarragon.base.clock import Clock
from tarragon.cluster.errors import AlreadyExists, ApiError, Conflict, Expired, NotFound, TooManyRequests, Unauthorized
from tarragon.cluster.port import Cluster, DeleteOptions
from tarragon.kube import event as events
from tarragon.kube.codec import timestamp
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import AnyObject, CustomObject, JsonObject, Key, Resource
from tarragon.plan.step import NAME_TAKEN, REFUSED, Create, Delete, Step

FIRST_BATCH = 4
LARGEST_BATCH = 64
"""Creates begin with a few and double as long as all go well: a quota that refuses the first refuses the rest, too."""

_COUNTED = Resource(group="", version="v1", plural="events", kind="Event", model=dict)


class Refused(Exception):
    """A quota, a policy or somebody else's object does not let it be made; the job's user should read the words.

    `reason` is one of plan.step: REFUSED or NAME_TAKEN.
    """

    def __init__(self, create: Create, error: ApiError, reason: str = REFUSED) -> None:
        super().__init__(str(error))
        self.event = f"FailedCreate{create.resource.kind}"
        self.reason = reason


async def apply(
    cluster: Cluster, clock: Clock, framework: Resource[CustomObject], job: CustomObject, step: Step
) -> None:
    """Raises the first ApiError, or Refused; what was done stays done, and the next step is decided on what is then."""
    key = job.metadata.key
    if step.mark is not None:
        await cluster.patch(framework, key, step.mark)
        return
    if step.status is not None:
        await cluster.patch(framework, key, step.status, subresource="status")
    # News come with the status that they are about: once it says so, no later step will tell them again.
    for event in step.events:
        await record(cluster, clock, event)
    await asyncio.gather(*(_delete(cluster, delete) for delete in step.deletes))
    try:
        await _create_all(cluster, step.creates)
    except Refused as refused:
        about = ObjectReference(api_version=job.api_version, kind=job.kind, key=key, uid=job.metadata.uid)
        await record(cluster, clock, Event(about=about, type="Warning", reason=refused.event, message=str(refused)))
        raise


async def record(cluster: Cluster, clock: Clock, event: Event, component: str = "tarragon") -> None:
    """Tell it once; when it was told before, count. An event that can't be written is not worth failing a job for."""
    body = events.body(event, clock.now(), component)
    key = Key(body["metadata"]["namespace"], event.name)
    try:
        await cluster.create(EVENTS, body)
    except AlreadyExists:
        with suppress(ApiError):
            told = await cluster.get(_COUNTED, key)
            count = int(told.get("count") or 1) + 1
            await cluster.patch(_COUNTED, key, {"count": count, "lastTimestamp": timestamp(clock.now())})
    except ApiError:
        # No permission, a quota, a namespace that is ending, a server that is busy with more important things.
        return


async def _delete(cluster: Cluster, delete: Delete) -> None:
    options = DeleteOptions(uid=delete.uid, resource_version=delete.resource_version, propagation="Background")
    try:
        await cluster.delete(delete.resource, delete.key, options)
    except NotFound:
        return


async def _create_all(cluster: Cluster, creates: Iterable[Create]) -> None:
    waiting = list(creates)
    size = FIRST_BATCH
    while waiting:
        batch, waiting = waiting[:size], waiting[size:]
        results = await asyncio.gather(*(_create(cluster, create) for create in batch), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        size = min(LARGEST_BATCH, size * 2)


async def _create(cluster: Cluster, create: Create) -> None:
    try:
        await cluster.create(create.resource, create.body)
    except AlreadyExists as error:
        metadata: JsonObject = create.body["metadata"]
        found = await cluster.get(
            create.resource.reading(AnyObject), Key(metadata.get("namespace", ""), metadata["name"])
        )
        owner = found.metadata.controller
        wanted = create.body["metadata"]["ownerReferences"][0]["uid"]
        if owner is None or owner.uid != wanted:
            raise Refused(create, name_is_taken(create, error), NAME_TAKEN) from error
        if found.metadata.is_ending:
            # Ours, and on its way out: its name is free in a moment.
            raise name_is_taken(create, error) from error
    except ApiError as error:
        if is_refusal(error):
            raise Refused(create, error) from error
        raise


def is_refusal(error: ApiError) -> bool:
    """Whether somebody has looked at the object and said no, so that asking again at once is of no use.

    Webhooks choose their code, and one that does not answer is a 500; quotas, limits, roles and namespaces that are
    ending say 403. Who is not known, who lags behind and who asks too often was not looked at.
    """
    if isinstance(error, Unauthorized | AlreadyExists | Conflict | Expired | TooManyRequests):
        return False
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or (
        error.code == HTTPStatus.INTERNAL_SERVER_ERROR and "webhook" in str(error)
    )


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
