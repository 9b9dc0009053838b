"""Finds jobs by the names that users type (`name`, `kind/name`, `@latest`) and reads them from a cluster."""

from __future__ import annotations

import asyncio
import datetime as dt
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tarragon.base.errors import Problem, TarragonError
from tarragon.cli.jobview.progress import INTERRUPTED, STOPPING, ProgressInput, state_of
from tarragon.cli.jobview.target import ClusterReader, is_offline_reader
from tarragon.cli.output.words import joined
from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.port import Selector
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.frameworks.registry import DEFAULT_FRAMEWORK, FRAMEWORKS, kinds
from tarragon.frameworks.unsupported_kinds import RUNS, unsupported_job_kind
from tarragon.job.model import ADOPT_ANNOTATION, Replica, ReplicaType, RestartPolicy, TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import EVENTS, Pod
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, OwnerIdentity, Resource
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.reconcile.manager_on_record import LEFT_TO_OTHER_OPERATOR

if TYPE_CHECKING:
    from tarragon.job.log_progress import LogProgress

T = TypeVar("T")

LATEST = "@latest"
_EVENTS = EVENTS.with_model(dict)

_LIST_ALL = "`list -A` lists the jobs of all namespaces"


class NoSuchJob(TarragonError):
    """The job does not exist. Exit code 102; scripts rely on it."""

    exit_code = 102


class AmbiguousName(TarragonError):
    """A name without a kind belongs to several jobs. Exit code 2, as for any argument that can't be used."""

    exit_code = 2

    def __init__(self, fact: str, names: Sequence[str]) -> None:
        super().__init__(f"{fact}: {joined(names)}", remedy=f"name the kind, as in {names[0]}")


class NotInstalled(TarragonError):
    """The cluster serves none of Tarragon's kinds."""

    def __init__(self) -> None:
        verb = "kind {} is" if len(kinds()) == 1 else "kinds {} are"
        super().__init__(
            f"the {verb.format(joined(kinds()))} not installed in this cluster",
            remedy="a cluster administrator can install Tarragon with `kubectl apply -k deploy`, from its folder",
        )


@dataclass(frozen=True, slots=True)
class JobName:
    """A job name as typed. `frameworks` are the kinds to search: one if the user named the kind, else all."""

    frameworks: Sequence[Framework]
    name: str

    @property
    def is_latest(self) -> bool:
        return self.name == LATEST

    @property
    def names_kind(self) -> bool:
        return len(self.frameworks) < len(FRAMEWORKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """A job read from a cluster. `job` and `dialect` are None if its manifest can't be read."""

    framework: Framework
    object: CustomObject
    job: TrainingJob | None
    dialect: Dialect | None
    status: JobStatus
    is_offline: bool = False
    """Whether it was read from the database of an embedded cluster that does not run."""
    warnings: Sequence[Problem] = ()
    """Warnings about its current manifest."""
    left_to: str = ""
    """What Tarragon's operator said when it left the job to another manager: in an event, not in the job's status."""

    @property
    def key(self) -> Key:
        return self.object.metadata.key

    @property
    def uid(self) -> str:
        return self.object.metadata.uid

    @property
    def as_owner(self) -> OwnerIdentity:
        """The owner reference by which its pods name it as their controller."""
        return self.object.owner_identity

    @property
    def created(self) -> dt.datetime | None:
        return self.object.metadata.creation_timestamp

    @property
    def is_processed(self) -> bool:
        """Whether some operator has written its status."""
        return bool(self.status.conditions) or self.status.phase is not Phase.CREATED

    @property
    def state(self) -> str:
        """The one-word state that users see."""
        if self.object.metadata.is_being_deleted and not self.status.phase.is_final:
            return STOPPING
        if self.is_offline and not self.status.phase.is_final and self.status.phase is not Phase.SUSPENDED:
            return INTERRUPTED
        return state_of(self.status)

    @property
    def name(self) -> str:
        return name_with_kind(self.framework, self.key.name)

    @property
    def command_key(self) -> Key:
        """Its key, with the name that suggested commands use: that of a TFJob has no kind, as most jobs are TFJobs."""
        name = self.key.name if self.framework is DEFAULT_FRAMEWORK else self.name
        return Key(self.key.namespace, name)

    @property
    def selector(self) -> str:
        """The label selector of its pods; empty for an adopted job, whose pods may carry another operator's labels."""
        if self.job is None or self.dialect is None:
            return "tarragon.dev/no-such-label"
        if self.object.metadata.annotations.get(ADOPT_ANNOTATION) == "true":
            return ""
        return ",".join(f"{name}={value}" for name, value in sorted(self.dialect.selector(self.job).items()))

    @property
    def likely_mistakes(self) -> Sequence[Problem]:
        """Mistakes in its manifest that its status makes likely."""
        return tuple(self.framework.likely_mistakes(self.job, self.status)) if self.job is not None else ()

    def restart_policy_of(self, replica: Replica) -> RestartPolicy | None:
        """The restart policy of the replica; None if the job can't be read, or has no such replica."""
        if self.job is None or self.job.replica_spec(replica.type) is None:
            return None
        return self.job.restart_policy_of(replica)

    def restart_policy_field(self, replica: Replica) -> str:
        """The path in the manifest, such as `spec.tfReplicaSpecs.Worker.restartPolicy`; empty if it is not known."""
        group = self.job.replica_spec(replica.type) if self.job is not None else None
        return f"{group.field_path}.restartPolicy" if group is not None and group.field_path else ""

    @property
    def helpful_restart_policy(self) -> RestartPolicy:
        """The policy with which the job survives a killed replica.

        Replicas that train collectively lose their connection then and exit with 1: ExitCode takes that for an error in
        the program, and fails the job. Workers of parameter servers don't need each other.
        """
        has_servers = any(self.framework.roles[kind].is_anchor for kind, size in self.requested.items() if size)
        return RestartPolicy.EXIT_CODE if has_servers else RestartPolicy.ON_FAILURE

    @property
    def requested(self) -> Mapping[ReplicaType, int]:
        return self.job.requested_size() if self.job is not None else {}


def parse_job_name(text: str) -> JobName:
    """Reads a name that a user typed. Raises NoSuchJob for an unknown kind."""
    kind, slash, name = text.rpartition("/")
    if not slash:
        return JobName(FRAMEWORKS, name)
    matching = [framework for framework in FRAMEWORKS if kind.lower() in kind_spellings(framework)]
    if not matching:
        unsupported = unsupported_job_kind(kind)
        if unsupported is not None:
            raise NoSuchJob(f"{unsupported} is not supported yet", remedy=RUNS)
        valid = ", ".join(map(str.lower, kinds()))
        raise NoSuchJob(f"unknown kind of job: {kind}", remedy=f"use one of {valid}, or the name alone")
    return JobName(matching, name)


def kind_spellings(framework: Framework) -> Sequence[str]:
    """The spellings of a kind that kubectl accepts: `tfjob`, `tfjob.kubeflow.org`, `tfjobs`, …, and short names."""
    kind, resource = framework.kind.lower(), framework.resource
    return kind, f"{kind}.{resource.group}", resource.plural, resource.full_name, *framework.short_names


def name_with_kind(framework: Framework, name: str) -> str:
    """Returns `kind/name` as every command accepts it; with the API group if an earlier kind has the same name."""
    kind, full, *_ = kind_spellings(framework)
    is_first = next(each for each in FRAMEWORKS if kind in kind_spellings(each)) is framework
    return f"{kind if is_first else full}/{name}"


def read_job(framework: Framework, found: CustomObject) -> ClusterJob:
    taken = decode_and_validate(framework, found)
    return ClusterJob(
        framework=framework,
        object=found,
        job=taken.job,
        dialect=taken.dialect,
        status=recorded_status(found),
        warnings=taken.warnings,
    )


async def find_job(reader: ClusterReader, text: str, namespace: str) -> ClusterJob:
    """Returns the job of that name. Raises NoSuchJob, which suggests the most similar name, or AmbiguousName."""
    wanted = parse_job_name(text)
    if wanted.is_latest:
        return latest_job(await list_jobs(reader, Selector(namespace=namespace), wanted.frameworks), namespace)
    found = await _jobs_of_name(reader, wanted, namespace)
    if not found:
        raise no_such_job_error(wanted, namespace, await list_jobs(reader, Selector(namespace=namespace)))
    if len(found) > 1 and not wanted.names_kind:
        fact = f"{wanted.name} is the name of {len(found)} jobs in namespace {namespace}"
        raise AmbiguousName(fact, [job.name for job in found])
    # Two API groups may have a kind of one name; like kubectl, `tfjob/digits` means the first.
    [job] = await _with_other_managers(reader, [replace(found[0], is_offline=is_offline_reader(reader))])
    return job


async def _jobs_of_name(reader: ClusterReader, wanted: JobName, namespace: str) -> Sequence[ClusterJob]:
    """Returns the jobs of that name, at most one of each kind. Kinds that may not be read count if there is no job."""
    key = Key(namespace, wanted.name)
    answers = await asyncio.gather(*(_job_or_refusal(reader, each, key) for each in wanted.frameworks))
    found = [each for each in answers if isinstance(each, ClusterJob)]
    refusals = (
        answer
        for framework, answer in zip(wanted.frameworks, answers, strict=True)
        if isinstance(answer, Forbidden) and is_required(framework.resource, wanted.frameworks)
    )
    refusal = next(refusals, None)
    if refusal is not None and not found:
        raise refusal
    return found


async def _job_or_refusal(reader: ClusterReader, framework: Framework, key: Key) -> ClusterJob | Forbidden | None:
    try:
        return read_job(framework, await reader.get(framework.resource, key))
    except NotFound:
        return None
    except Forbidden as error:
        return error


def is_required(resource: Resource[Json], asked: Sequence[Framework] = FRAMEWORKS) -> bool:
    """Whether a command fails if it may not read this kind. Old roles of Tarragon grant kubeflow.org's kinds only."""
    optional = [framework.resource.full_name for framework in asked if framework.is_crd_optional]
    return resource.full_name not in optional or len(asked) == 1


async def list_jobs(
    reader: ClusterReader, selection: Selector, frameworks: Sequence[Framework] = FRAMEWORKS
) -> Sequence[ClusterJob]:
    """Returns the jobs, by namespace and name. Raises NotInstalled if the cluster serves none of the kinds."""
    listings = await _listings(reader, [framework.resource for framework in frameworks], selection)
    found = [
        replace(read_job(framework, each), is_offline=is_offline_reader(reader))
        for framework, items in zip(frameworks, listings, strict=True)
        for each in items
    ]
    known = await _with_other_managers(reader, found)
    return sorted(known, key=lambda job: (job.key, job.framework.kind))


async def _with_other_managers(reader: ClusterReader, jobs: Sequence[ClusterJob]) -> Sequence[ClusterJob]:
    """Adds what the operator said of jobs that it left to another manager, as far as the user may read events."""
    namespaces = {job.key.namespace for job in jobs if not job.is_processed}
    if not namespaces or is_offline_reader(reader):
        return jobs
    where = namespaces.pop() if len(namespaces) == 1 else ""
    try:
        listed = await reader.list(
            _EVENTS, Selector(namespace=where, field_selector=f"reason={LEFT_TO_OTHER_OPERATOR}")
        )
    except (NotFound, Forbidden):
        return jobs
    said = {event["involvedObject"].get("uid", ""): str(event.get("message", "")) for event in listed.items}
    return [job if job.is_processed else replace(job, left_to=said.get(job.uid, "")) for job in jobs]


async def list_raw_jobs(reader: ClusterReader, selection: Selector) -> Sequence[JsonObject]:
    """Returns the jobs as raw objects, by namespace and name."""
    listings = await _listings(reader, [framework.resource.with_model(dict) for framework in FRAMEWORKS], selection)
    found: list[JsonObject] = [each for items in listings for each in items]
    return sorted(found, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"], job["kind"]))


async def _listings(
    reader: ClusterReader, resources: Sequence[Resource[T]], selection: Selector
) -> Sequence[Sequence[T]]:
    """Lists each resource; empty for a kind that is not served, or that is optional and may not be read."""
    found: list[Sequence[T]] = []
    missing = 0
    for resource in resources:
        try:
            found.append((await reader.list(resource, selection)).items)
        except (NotFound, Forbidden) as error:
            if isinstance(error, Forbidden) and is_required(resource):
                raise
            found.append(())
            missing += 1
    if missing == len(resources) and not is_offline_reader(reader):
        raise NotInstalled
    return found


def latest_job(jobs: Iterable[ClusterJob], namespace: str) -> ClusterJob:
    """Returns the job that was created last. Raises NoSuchJob if there is none."""
    newest = max(jobs, key=lambda job: (job.created.timestamp() if job.created else 0.0, job.key), default=None)
    if newest is None:
        raise NoSuchJob(f"no jobs found in namespace {namespace}", remedy=_LIST_ALL)
    return newest


def no_such_job_error(wanted: JobName, namespace: str, jobs: Iterable[ClusterJob]) -> NoSuchJob:
    """Returns an error that suggests the job with the most similar name, of any kind; that of the kind comes first."""
    named: dict[str, list[ClusterJob]] = {}
    for job in jobs:
        named.setdefault(job.key.name, []).append(job)
    near = difflib.get_close_matches(wanted.name, sorted(named), n=1)
    remedy = f"did you mean {_suggested(wanted, named[near[0]])}?" if near else _LIST_ALL
    return NoSuchJob(f'job "{wanted.name}" not found in namespace {namespace}', remedy=remedy)


def _suggested(wanted: JobName, jobs: Sequence[ClusterJob]) -> str:
    """Returns the name of one of the jobs, which share one, as the user has to type it."""
    if not wanted.names_kind and len(jobs) == 1:
        return jobs[0].key.name
    return next((job for job in jobs if job.framework in wanted.frameworks), jobs[0]).name


def pods_of(job: ClusterJob, pods: Iterable[Pod]) -> Iterator[tuple[Replica, Pod]]:
    """Yields the pods that the job controls, each with its replica. Pods of a former job of that name are left out."""
    if job.job is None or job.dialect is None:
        return
    owner = job.as_owner
    for pod in pods:
        replica = job.dialect.names.replica_of(job.job, pod.metadata.name)
        if replica is not None and pod.metadata.controller_identity == owner:
            yield replica, pod


def unread_log(job: ClusterJob) -> LogProgress:
    """Returns what is known of the training before its log is read: how its lines are to be understood."""
    from tarragon.job.log_progress import LogProgress  # `list` reads no logs

    return LogProgress(bars_sum_metrics=job.job is not None and job.framework.bars_sum_metrics(job.job))


def progress_input(job: ClusterJob, pods: Mapping[Replica, Pod], gone: frozenset[str] = frozenset()) -> ProgressInput:
    return ProgressInput(
        key=job.key,
        kind=job.framework.kind,
        created=job.created,
        status=job.status,
        state=job.state,
        requested=job.requested,
        main_container=job.framework.main_container,
        pods=pods,
        deleted_uids=gone,
    )
