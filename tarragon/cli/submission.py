"""Bringing the documents of a FILE into the cluster: what a job needs first, then the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.ending import delete
from tarragon.cli.follow.progress import wait
from tarragon.cli.hints import spelled
from tarragon.cli.invocation import here
from tarragon.cli.jobs import Known, known
from tarragon.cli.kept import runs_of_job
from tarragon.cli.loading import Loaded
from tarragon.cli.settings import home
from tarragon.cli.words import age
from tarragon.cluster.errors import AlreadyExists, NotFound
from tarragon.cluster.port import Cluster
from tarragon.frameworks.plugin import Framework
from tarragon.job.phase import Phase
from tarragon.kube.core import NAMESPACES
from tarragon.kube.meta import CustomObject, JsonObject, Key, Resource
from tarragon.scheduling.decision import NEVER_FITS

Note = Callable[[str], None]


async def submit(cluster: Cluster, loaded: Loaded, clock: Clock, note: Note) -> Known:
    """Everything of a FILE, the job last: what it needs is there when it begins."""
    await ensure_namespace(cluster, loaded.namespace, note)
    for resource, body in loaded.others:
        await put(cluster, resource, body, note)
    return await put_job(cluster, loaded.framework, loaded.job, clock, note)


async def ensure_namespace(cluster: Cluster, name: str, note: Note) -> None:
    """Here a namespace costs nothing: a manifest that names one should not fail for it."""
    try:
        await cluster.get(NAMESPACES, Key("", name))
    except NotFound:
        await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        note(f"namespace/{name} created")


async def put(cluster: Cluster, resource: Resource[CustomObject], body: JsonObject, note: Note) -> None:
    """Create it, or merge it into the one that is there."""
    metadata = body["metadata"]
    key = Key(metadata.get("namespace", "") if resource.namespaced else "", metadata.get("name", ""))
    label = f"{resource.kind.lower()}/{key.name}"
    try:
        await cluster.create(resource, body)
    except AlreadyExists:
        before = await cluster.get(resource, key)
        after = await cluster.patch(resource, key, {name: body[name] for name in body if name != "status"})
        is_same = before.metadata.resource_version == after.metadata.resource_version
        note(f"{label} {'unchanged' if is_same else 'updated'}")
    else:
        note(f"{label} created")


async def put_job(cluster: Cluster, framework: Framework, body: JsonObject, clock: Clock, note: Note) -> Known:
    """Create it. One of that name that has ended, or can never begin, makes room for it; any other one stays."""
    resource = replace(framework.resource, version=str(body["apiVersion"]).rpartition("/")[2])
    try:
        created = await cluster.create(resource, body)
    except AlreadyExists:
        metadata = body["metadata"]
        former = known(framework, await cluster.get(framework.resource, Key(metadata["namespace"], metadata["name"])))
        waits = wait(former.status)
        if not former.status.phase.is_final and (waits is None or waits.code != NEVER_FITS):
            raise still_there(former) from None
        kept = "; its logs are kept" if runs_of_job(home().nodes, former) else ""
        since = age(former.born, clock.now())
        note(f"{former.name} of {since} ago ({former.state}) makes room{kept}")
        await delete(cluster, former, clock)
        created = await cluster.create(resource, body)
    job = known(framework, created)
    note(f"{job.name} created in {job.key.namespace} on local ({home().folder})")
    return job


def still_there(job: Known) -> TarragonError:
    """The words for somebody who starts a job a second time."""
    program = here()
    word = job.state
    if job.status.phase is Phase.SUSPENDED:
        remedy = f"delete it first: {spelled(program, job.key, 'delete')}"
    else:
        remedy = (
            f"follow it: {spelled(program, job.key, 'logs --follow')}\n"
            f"or end it first: {spelled(program, job.key, 'delete')}"
        )
    return TarragonError(f"{job.name} is there already: {word}", remedy=remedy)
