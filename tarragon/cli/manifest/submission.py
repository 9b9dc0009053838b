"""Creates the objects of a FILE in the cluster: the job's dependencies first, then the job."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.exit_code import NEVER_FITS as EXIT_CODE
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.jobview.progress import wait_of
from tarragon.cli.jobview.target import ClusterTarget, Notify
from tarragon.cli.manifest.comparison import compare_job as compared
from tarragon.cli.manifest.comparison import compare_object
from tarragon.cli.manifest.dependencies import missing_dependencies
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.local_images import WORKDIR
from tarragon.cli.manifest.unbindable_claims import unbindable_claims
from tarragon.cli.output.words import age
from tarragon.cli.targets.ending import delete_job
from tarragon.cli.targets.next_commands import command_line, next_commands
from tarragon.cli.targets.refusals import is_kind_missing
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.client.errors import AlreadyExists, Conflict, Forbidden, NotFound
from tarragon.client.port import Client, Selector
from tarragon.job.annotations import IDEMPOTENCY_KEY_ANNOTATION
from tarragon.job.phase import Phase
from tarragon.kube.core import NAMESPACES
from tarragon.kube.meta import CustomObject, JsonObject, Key, Resource
from tarragon.scheduling.api.decision import NEVER_FITS

_GIVING_ATTEMPTS = 10
_TRIED_NUMBERS = 98
"""How many names of a script's job are tried one by one, where jobs can't be listed."""


BeforeReplacing = Callable[[Client, LoadedJob, ClusterJob, Clock], Awaitable[None]]
"""Raises TarragonError if the new job must not take the place of the one that has ended, which is still there."""


async def allow_replacing(_: Client, __: LoadedJob, ___: ClusterJob, ____: Clock) -> None:
    """Any job may take the place of one that has ended."""


class ImpossibleJob(TarragonError):
    """A job that this machine can never start, and that therefore replaces none. Exit code 105."""

    exit_code = EXIT_CODE


class JobExists(TarragonError):
    """The job's name is taken, by `former`."""

    def __init__(self, former: ClusterJob, what: str, *, why: str = "", remedy: str) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.former = former


@dataclass(frozen=True, slots=True)
class SubmissionPreview:
    """The job as it would be submitted. `is_taken`: another job has its name now."""

    loaded: LoadedJob
    is_taken: bool


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits to one cluster, and reports each change with the cluster's name."""

    cluster: Client
    target: ClusterTarget
    clock: Clock
    note: Notify
    before_replacing: BeforeReplacing = allow_replacing

    async def submit_unless_unchanged(self, loaded: LoadedJob) -> ClusterJob:
        """Submits a FILE, unless the cluster already has its job unchanged: then nothing is changed."""
        same = await self._same(loaded)
        if same is None:
            return await self.submit(loaded)
        self.note(
            f"{same.name} unchanged: it already exists in {same.key.namespace} on {self.target.name} ({same.state})"
        )
        return same

    async def _same(self, loaded: LoadedJob) -> ClusterJob | None:
        """Returns the existing job with the same idempotency key, or else with the same manifest.

        None for a finished job of the embedded cluster: it is run again, because its logs are kept. None for a script,
        too: it may have changed, and runs under another name if its own is taken.
        """
        key = Key(loaded.namespace, loaded.job["metadata"].get("name", ""))
        if not key.name or loaded.replaces_finished or loaded.numbered is not None:
            return None
        try:
            former = read_job(loaded.framework, await self.cluster.get(loaded.framework.resource, key))
        except (NotFound, Forbidden):
            return None
        wanted = loaded.job["metadata"].get("annotations", {}).get(IDEMPOTENCY_KEY_ANNOTATION)
        if wanted is not None and former.object.metadata.annotations.get(IDEMPOTENCY_KEY_ANNOTATION) == wanted:
            return former
        if former.object.metadata.is_being_deleted or (self.target.is_local and self._is_over(former)):
            return None
        comparisons = [await compared(self.cluster, loaded)]
        comparisons += [await compare_object(self.cluster, resource, body) for resource, body in loaded.companions]
        if not any(each.differs for each in comparisons):
            return former
        if not self._is_over(former):
            raise job_differs_error(former, self.target)
        return None

    async def submit(self, loaded: LoadedJob) -> ClusterJob:
        """Creates the objects of a FILE. A script whose name is taken gets the first free number."""
        base = str(loaded.job["metadata"].get("name", ""))
        while True:
            try:
                return await self._submit(loaded)
            except JobExists as taken:
                if loaded.numbered is None:
                    raise
                loaded = loaded.numbered(await self._free_number(loaded, base))
                self.note(self._numbered_text(taken, loaded))

    def _numbered_text(self, taken: JobExists, loaded: LoadedJob) -> str:
        """Says why the job of a script has its name. Its former job may run since a `run` that was killed."""
        former, key = taken.former, taken.former.command_key
        name = str(loaded.job["metadata"]["name"])
        if former.status.phase.is_final:
            return (
                f"{former.name} is kept on {self.target.name} ({former.state}), so this job is {name}; "
                "with --replace it would take that job's place, whose logs would be deleted"
            )
        is_suspended = former.status.phase is Phase.SUSPENDED
        goes_on = ("resume", "resume") if is_suspended else ("follow", "logs --follow")
        steps = [(f"{label} {former.key.name}", verb) for label, verb in (goes_on, ("end", "delete"))]
        lines = [f"{former.name} is still {former.state}, so this job is {name}"]
        if folder := _shared_folder(former, loaded):
            lines.append(f"  Both work in {folder}: they share the files there, such as checkpoints.")
        return "\n".join([*lines, *next_commands(self.target.command_prefix, key, steps)])

    async def preview(self, loaded: LoadedJob) -> SubmissionPreview:
        """Returns what `submit` would create, and reports what would become of a job of that name. Changes nothing."""
        name = str(loaded.job["metadata"].get("name", ""))
        try:
            former = await self._replaced_job(loaded)
        except JobExists as taken:
            if loaded.numbered is None:
                is_over = taken.former.status.phase.is_final
                what = taken.remedy if is_over else "showing FILE's version; `diff` shows what submitting would change"
                self.note(f"{taken.summary}; {what}")
                return SubmissionPreview(loaded, is_taken=True)
            free = loaded.numbered(await self._free_number(loaded, name))
            self.note(self._numbered_text(taken, free))
            return await self.preview(free)
        if former is not None:
            self.note(self._replacement(former, "would"))
        return SubmissionPreview(loaded, is_taken=former is not None)

    async def _free_number(self, loaded: LoadedJob, base: str) -> int:
        """Returns the first number for which no job `base-number` exists that must stay."""
        numbered = re.compile(rf"{re.escape(base)}-(\d{{1,9}})")
        taken: set[int] = set()
        try:
            jobs = (await self.cluster.list(loaded.framework.resource, Selector(namespace=loaded.namespace))).items
        except Forbidden:
            return await self._missing_number(loaded, base)
        for found in jobs:
            match = numbered.fullmatch(found.metadata.name)
            if match and not (self.target.is_local and self._is_over(read_job(loaded.framework, found))):
                taken.add(int(match[1]))
        return next(number for number in count(2) if number not in taken)

    async def _missing_number(self, loaded: LoadedJob, base: str) -> int:
        """Returns the first number of which no job exists, for a user who may read jobs but not list them."""
        for number in range(2, 2 + _TRIED_NUMBERS):
            try:
                await self.cluster.get(loaded.framework.resource, Key(loaded.namespace, f"{base}-{number}"))
            except NotFound:
                return number
        raise TarragonError(
            f"{base} and {base}-2 to {base}-{1 + _TRIED_NUMBERS} already exist on {self.target.name}",
            why="you may not list jobs there, so the first free number is not looked for any further",
            remedy="choose a name: --name NAME",
        )

    async def _submit(self, loaded: LoadedJob) -> ClusterJob:
        """Creates the objects of a FILE, the job last, so that its dependencies exist when it starts."""
        if self.target.is_local:
            await self.ensure_namespace(loaded.namespace)
        await self._require_place(loaded)
        for resource, body in loaded.companions:
            await self.create_or_merge(resource, body)
        job = await self.create_job(loaded)
        if loaded.is_script:
            for resource, body in loaded.companions:
                await self._give_to_job(resource, body, loaded, job)
        for problem in await missing_dependencies(self.cluster, loaded.job, (), loaded.missing_object_problem):
            self.note(f"warning: {problem}")
        if not self.target.is_local:  # the embedded cluster binds every claim to a folder
            for problem in await unbindable_claims(self.cluster, loaded.job, ()):
                self.note(f"warning: {problem}")
        return job

    async def ensure_namespace(self, name: str) -> None:
        """Creates the namespace if it is missing: on the embedded cluster, users need not create it themselves."""
        try:
            await self.cluster.get(NAMESPACES, Key("", name))
        except NotFound:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.cluster.create(NAMESPACES, body)
            self.note(f"namespace/{name} created")

    async def create_or_merge(self, resource: Resource[CustomObject], body: JsonObject) -> None:
        """Creates the object, or merges it into the existing one."""
        metadata = body["metadata"]
        key = Key(metadata.get("namespace", "") if resource.namespaced else "", metadata.get("name", ""))
        label, target = f"{resource.kind.lower()}/{key.name}", f"in {key.namespace} on {self.target.name}"
        try:
            await self.cluster.create(resource, body)
        except AlreadyExists:
            before = await self.cluster.get(resource, key)
            after = await self.cluster.patch(resource, key, {name: body[name] for name in body if name != "status"})
            is_same = before.metadata.resource_version == after.metadata.resource_version
            self.note(f"{label} unchanged" if is_same else f"{label} updated {target}")
        else:
            self.note(f"{label} created {target}")

    async def _give_to_job(
        self, resource: Resource[CustomObject], body: JsonObject, loaded: LoadedJob, job: ClusterJob
    ) -> None:
        """Makes the job an owner of its script's code, which is deleted with the last job that runs it.

        Without the permission for that, the code stays, like other objects of a manifest.
        """
        owner = {
            "apiVersion": loaded.job["apiVersion"],
            "kind": loaded.framework.kind,
            "name": job.key.name,
            "uid": job.object.metadata.uid,
        }
        key = Key(job.key.namespace, str(body["metadata"]["name"]))
        for _ in range(_GIVING_ATTEMPTS):
            try:
                found = (await self.cluster.get(resource, key)).metadata
                owners = [
                    {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid}
                    for each in found.owner_references
                ]
                metadata = {"resourceVersion": found.resource_version, "ownerReferences": [*owners, owner]}
                await self.cluster.patch(resource, key, {"metadata": metadata})
            except Conflict:
                continue  # somebody else runs the same script at this moment
            except NotFound:
                # The last job that had it was deleted meanwhile.
                with suppress(AlreadyExists):
                    await self.cluster.create(resource, body)
                continue
            except Forbidden:
                pass
            return

    async def create_job(self, loaded: LoadedJob) -> ClusterJob:
        """Creates the job. First deletes a finished job of that name if its logs are kept, or with --replace."""
        framework, body = loaded.framework, loaded.job
        resource = replace(framework.resource, version=str(body["apiVersion"]).rpartition("/")[2])
        try:
            created = await self.cluster.create(resource, body)
        except AlreadyExists:
            metadata = body["metadata"]
            key = Key(metadata["namespace"], metadata["name"])
            former = read_job(framework, await self.cluster.get(framework.resource, key))
            await self._delete_former(former, loaded)
            created = await self.cluster.create(resource, body)
        job = read_job(framework, created)
        self.note(f"{job.name} created in {job.key.namespace} on {self.target.name}")
        return job

    async def _replaced_job(self, loaded: LoadedJob) -> ClusterJob | None:
        """Returns the finished job that the new one would replace.

        It is called before anything is changed. Raises TarragonError or NotFound if the job can't be created.
        """
        key = Key(loaded.namespace, loaded.job["metadata"].get("name", ""))
        if not key.name:
            return None  # generateName: the server chooses an unused name
        try:
            former = read_job(loaded.framework, await self.cluster.get(loaded.framework.resource, key))
        except Forbidden:
            return None
        except NotFound as error:
            if is_kind_missing(error):
                raise
            return None
        self._check_replaceable(former, loaded)
        return former

    async def _require_place(self, loaded: LoadedJob) -> None:
        """Raises TarragonError or NotFound if the job can't be created, or must not replace a finished one."""
        former = await self._replaced_job(loaded)
        if former is not None:
            await self.before_replacing(self.cluster, loaded, former, self.clock)

    def _check_replaceable(self, former: ClusterJob, loaded: LoadedJob) -> None:
        """Raises TarragonError if the existing job must not be deleted."""
        if not self._is_over(former):
            raise job_exists_error(former, self.target)
        if not self.target.is_local and not loaded.replaces_finished:
            raise JobExists(
                former,
                f"{former.name} already exists: {former.state}",
                why=f"replacing it on {self.target.name} would also delete its logs",
                remedy="use --replace to delete it and submit this one, or give this one another name",
            )

    async def _delete_former(self, former: ClusterJob, loaded: LoadedJob) -> None:
        """Deletes a finished job of the same name. Raises TarragonError if it must not be deleted."""
        self._check_replaceable(former, loaded)
        self.note(self._replacement(former, "will"))
        await delete_job(self.cluster, former, self.clock)

    def _replacement(self, former: ClusterJob, verb: str) -> str:
        """Says that a finished job will, or would, be replaced."""
        kept = "; its logs are kept" if runs_of_job(self.target.nodes_folder, former) else ""
        since, target = age(former.created, self.clock.now()), f" in {former.key.namespace} on {self.target.name}"
        place = "" if self.target.is_local else target
        return f"{former.name} from {since} ago ({former.state}) {verb} be replaced{place}{kept}"

    def _is_over(self, former: ClusterJob) -> bool:
        """Whether the job has ended, or could never fit on this machine."""
        waits = wait_of(former.status)
        can_never_start = self.target.is_local and waits is not None and waits.code == NEVER_FITS
        return former.status.phase.is_final or can_never_start


def _shared_folder(former: ClusterJob, loaded: LoadedJob) -> str:
    """Returns the folder of this machine in which replicas of both jobs start; empty if there is none."""
    shared = _folders({"spec": former.object.spec}) & _folders(loaded.job)
    return min(shared, default="")


def _folders(job: JsonObject) -> set[str]:
    annotations = [(template.get("metadata") or {}).get("annotations") or {} for _, template in pod_templates(job)]
    return {str(given[WORKDIR]) for given in annotations if WORKDIR in given}


def job_differs_error(job: ClusterJob, target: ClusterTarget) -> TarragonError:
    """The error for submitting a different job under the name of an unfinished one."""
    return TarragonError(
        f"{job.name} already exists in {job.key.namespace} on {target.name} ({job.state}), and FILE differs from it",
        remedy="`diff FILE` shows the differences; rename this job, change that one (`scale`, kubectl apply),\n"
        f"or delete it first: {command_line(target.command_prefix, job.command_key, 'delete')}",
    )


def job_exists_error(job: ClusterJob, target: ClusterTarget) -> JobExists:
    """The error for submitting a job whose name an unfinished job has."""
    if job.status.phase is Phase.SUSPENDED:
        remedy = (
            f"resume it: {command_line(target.command_prefix, job.command_key, 'resume')}\n"
            f"or delete it first: {command_line(target.command_prefix, job.command_key, 'delete')}"
        )
    else:
        remedy = (
            f"follow it: {command_line(target.command_prefix, job.command_key, 'logs --follow')}\n"
            f"or delete it first: {command_line(target.command_prefix, job.command_key, 'delete')}"
        )
    place = "" if target.is_local else f" on {target.name}"
    return JobExists(job, f"{job.name} already exists{place}: {job.state}", remedy=remedy)
