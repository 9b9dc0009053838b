"""Bringing the documents of a FILE into the cluster: what a job needs first, then the job."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import Known, known
from tarragon.cli.jobview.progress import wait
from tarragon.cli.jobview.target import Note, Target
from tarragon.cli.manifest.comparison import companion
from tarragon.cli.manifest.comparison import job as compared
from tarragon.cli.manifest.dependencies import missing
from tarragon.cli.manifest.loading import Loaded
from tarragon.cli.output.words import age
from tarragon.cli.targets.ending import delete
from tarragon.cli.targets.next_commands import spelled
from tarragon.cli.targets.refusals import is_kind_missing
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.client.errors import AlreadyExists, Forbidden, NotFound
from tarragon.client.port import Cluster
from tarragon.job.annotations import IDEMPOTENCY_KEY
from tarragon.job.phase import Phase
from tarragon.kube.core import NAMESPACES
from tarragon.kube.meta import CustomObject, JsonObject, Key, Resource
from tarragon.scheduling.api.decision import NEVER_FITS


@dataclass(frozen=True, slots=True)
class Submission:
    """To one cluster; everything that is changed there is told, with where it is."""

    cluster: Cluster
    where: Target
    clock: Clock
    note: Note

    async def submit_once(self, loaded: Loaded) -> Known:
        """The same, but one that is there already as the FILE has it is what was wanted, and nothing is changed."""
        same = await self._same(loaded)
        if same is None:
            return await self.submit(loaded)
        self.note(
            f"{same.name} unchanged: it is there already in {same.key.namespace} on {self.where.name} ({same.state})"
        )
        return same

    async def _same(self, loaded: Loaded) -> Known | None:
        """By its idempotency key, or else by its manifest. One that has ended here is run again, as nothing is lost."""
        key = Key(loaded.namespace, loaded.job["metadata"].get("name", ""))
        if not key.name or loaded.is_replacing:
            return None
        try:
            former = known(loaded.framework, await self.cluster.get(loaded.framework.resource, key))
        except (NotFound, Forbidden):
            return None
        wanted = loaded.job["metadata"].get("annotations", {}).get(IDEMPOTENCY_KEY)
        if wanted is not None and former.object.metadata.annotations.get(IDEMPOTENCY_KEY) == wanted:
            return former
        if former.object.metadata.is_ending or (self.where.is_local and self._is_over(former)):
            return None
        found = [await compared(self.cluster, loaded)]
        found += [await companion(self.cluster, resource, body) for resource, body in loaded.others]
        if not any(each.differs for each in found):
            return former
        if not self._is_over(former):
            raise other(former, self.where)
        return None

    async def submit(self, loaded: Loaded) -> Known:
        """Everything of a FILE, the job last: what it needs is there when it begins."""
        if self.where.is_local:
            await self.ensure_namespace(loaded.namespace)
        await self._expect_room(loaded)
        for resource, body in loaded.others:
            await self.put(resource, body)
        job = await self.put_job(loaded)
        for problem in await missing(self.cluster, loaded.job, ()):
            self.note(f"warning: {problem}")
        return job

    async def ensure_namespace(self, name: str) -> None:
        """Here a namespace costs nothing: a manifest that names one should not fail for it."""
        try:
            await self.cluster.get(NAMESPACES, Key("", name))
        except NotFound:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.cluster.create(NAMESPACES, body)
            self.note(f"namespace/{name} created")

    async def put(self, resource: Resource[CustomObject], body: JsonObject) -> None:
        """Create it, or merge it into the one that is there."""
        metadata = body["metadata"]
        key = Key(metadata.get("namespace", "") if resource.namespaced else "", metadata.get("name", ""))
        label, where = f"{resource.kind.lower()}/{key.name}", f"in {key.namespace} on {self.where.name}"
        try:
            await self.cluster.create(resource, body)
        except AlreadyExists:
            before = await self.cluster.get(resource, key)
            after = await self.cluster.patch(resource, key, {name: body[name] for name in body if name != "status"})
            is_same = before.metadata.resource_version == after.metadata.resource_version
            self.note(f"{label} unchanged" if is_same else f"{label} updated {where}")
        else:
            self.note(f"{label} created {where}")

    async def put_job(self, loaded: Loaded) -> Known:
        """Create it. One of that name that has ended makes room for it where that loses nothing, or is wanted."""
        framework, body = loaded.framework, loaded.job
        resource = replace(framework.resource, version=str(body["apiVersion"]).rpartition("/")[2])
        try:
            created = await self.cluster.create(resource, body)
        except AlreadyExists:
            metadata = body["metadata"]
            key = Key(metadata["namespace"], metadata["name"])
            former = known(framework, await self.cluster.get(framework.resource, key))
            await self._make_room(former, loaded)
            created = await self.cluster.create(resource, body)
        job = known(framework, created)
        self.note(f"{job.name} created in {job.key.namespace} on {self.where.name}")
        return job

    async def _expect_room(self, loaded: Loaded) -> None:
        """A job that can't be made changes nothing else: not what one of its name runs with, nor without the kind."""
        key = Key(loaded.namespace, loaded.job["metadata"].get("name", ""))
        if not key.name:
            return  # generateName: nobody has it yet
        try:
            former = await self.cluster.get(loaded.framework.resource, key)
        except Forbidden:
            return
        except NotFound as error:
            if is_kind_missing(error):
                raise
            return
        self._must_go(known(loaded.framework, former), loaded)

    def _must_go(self, former: Known, loaded: Loaded) -> None:
        """Raises TarragonError for one that stays."""
        if not self._is_over(former):
            raise still_there(former, self.where)
        if not self.where.is_local and not loaded.is_replacing:
            raise TarragonError(
                f"{former.name} is there already: {former.state}",
                why=f"on {self.where.name} nothing would be left of it, not even its logs",
                remedy="--replace deletes it and submits this one in its place; or give this one another name",
            )

    async def _make_room(self, former: Known, loaded: Loaded) -> None:
        """Raises TarragonError for one that stays."""
        self._must_go(former, loaded)
        kept = "; its logs are kept" if runs_of_job(self.where.nodes, former) else ""
        since, where = age(former.born, self.clock.now()), f" in {former.key.namespace} on {self.where.name}"
        place = "" if self.where.is_local else where
        self.note(f"{former.name} of {since} ago ({former.state}) makes room{place}{kept}")
        await delete(self.cluster, former, self.clock)

    def _is_over(self, former: Known) -> bool:
        """It has ended; or this machine, which never grows, is too small for it."""
        waits = wait(former.status)
        can_never_start = self.where.is_local and waits is not None and waits.code == NEVER_FITS
        return former.status.phase.is_final or can_never_start


def other(job: Known, where: Target) -> TarragonError:
    """The words for somebody who submits something else under the name of a job that has not ended."""
    return TarragonError(
        f"{job.name} is there already in {job.key.namespace} on {where.name} ({job.state}), and FILE differs from it",
        remedy="`diff FILE` shows how; give this one another name, change that one (`scale`, kubectl apply),\n"
        f"or end it first: {spelled(where.prompt, job.address, 'delete')}",
    )


def still_there(job: Known, where: Target) -> TarragonError:
    """The words for somebody who starts a job a second time."""
    if job.status.phase is Phase.SUSPENDED:
        remedy = (
            f"let it go on: {spelled(where.prompt, job.address, 'resume')}\n"
            f"or end it first: {spelled(where.prompt, job.address, 'delete')}"
        )
    else:
        remedy = (
            f"follow it: {spelled(where.prompt, job.address, 'logs --follow')}\n"
            f"or end it first: {spelled(where.prompt, job.address, 'delete')}"
        )
    place = "" if where.is_local else f" on {where.name}"
    return TarragonError(f"{job.name} is there already{place}: {job.state}", remedy=remedy)
