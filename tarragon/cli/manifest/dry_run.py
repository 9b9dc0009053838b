"""`--dry-run`: builds every object that a FILE leads to, by the operator's own rules, without creating any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tarragon.base.clock import Clock
from tarragon.cli.jobview.target import ClusterTarget, Notify
from tarragon.cli.manifest.comparison import LOCAL_ANNOTATIONS, with_secrets_hidden
from tarragon.cli.manifest.dependencies import missing_dependencies
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.overrides import without_template_annotations
from tarragon.cli.manifest.submission import Submitter
from tarragon.cli.manifest.unbindable_claims import unbindable_claims
from tarragon.client.errors import AlreadyExists, ApiError, Forbidden
from tarragon.frameworks.plugin import Framework, JobObservation
from tarragon.job.status import JobStatus
from tarragon.kube.core import CONFIG_MAPS, PODS, SECRETS, SERVICES
from tarragon.kube.meta import Json, JsonObject, Resource
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects import desired
from tarragon.plan.objects.desired import JobBlueprint
from tarragon.plan.objects.logs import LogFormat
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile import tensorboard

if TYPE_CHECKING:
    from tarragon.client.http.client import HttpClient

PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"
"""The UID of a job that does not exist yet. Names in v1alpha1 and mlkube.io contain the UID."""
RawObject = dict[str, Json]

_KINDS: Mapping[str, Resource[RawObject]] = {
    resource.kind: resource.with_model(dict) for resource in (CONFIG_MAPS, SECRETS, SERVICES, PODS)
}


@dataclass(frozen=True, slots=True)
class DryRun:
    """The objects of one job, in the order in which they would be created."""

    framework: Framework
    objects: Sequence[JsonObject]


def client_dry_run(loaded: LoadedJob, logs: LogFormat = LogFormat.TEXT) -> DryRun:
    """Builds the objects without a cluster: defaults and names that the server sets are missing."""
    job = {"apiVersion": loaded.framework.resource.api_version, "kind": loaded.framework.kind, **loaded.job}
    others = [body for _, body in loaded.companions]
    return DryRun(loaded.framework, [*others, job, *child_objects(loaded.framework, job, logs)])


def child_objects(framework: Framework, job: JsonObject, logs: LogFormat) -> Iterator[JsonObject]:
    """Yields the ConfigMaps, Services and pods of the job at its requested size, and of its TensorBoard."""
    metadata = job["metadata"]
    named = {**metadata, "uid": metadata.get("uid") or PLACEHOLDER_UID}
    if not named.get("name"):
        named["name"] = f"{named.get('generateName', '')}xxxxx"
    taken = decode_and_validate(framework, {**job, "metadata": named})
    if taken.job is None or taken.dialect is None:
        return
    plan = JobBlueprint(
        framework=framework,
        dialect=taken.dialect,
        job=taken.job,
        size=taken.job.requested_size(),
        settings=OperatorSettings(log_format=logs),
    )
    replicas = list(desired.in_start_order(framework, taken.job, taken.job.replicas_of_size(plan.size)))
    view = JobObservation(job=taken.job, size=plan.size, replicas=replicas, replica_states={}, status=JobStatus())
    for wanted in (*framework.owned_objects(view), *desired.log_config_maps(plan)):
        yield desired.build_owned_object(plan, wanted)
    for resource, bodies in (
        (SERVICES, desired.build_services(plan, (wanted for _, wanted in desired.services(plan)))),
        (PODS, desired.build_pods(plan, replicas)),
        (SERVICES, tensorboard.build_tensorboard_services(plan)),
        (PODS, tensorboard.build_tensorboard_pods(plan)),
    ):
        yield from ({"apiVersion": "v1", "kind": resource.kind, **body} for body in bodies)


async def server_dry_run(
    target: ClusterTarget, loaded: LoadedJob, clock: Clock, note: Notify, logs: LogFormat = LogFormat.TEXT
) -> DryRun:
    """Builds the objects with a server-side dry run. Raises the server's error if it rejects an object of FILE."""
    framework = loaded.framework
    async with target.writing(clock) as http:
        preview = await Submitter(http, target, clock, note).preview(loaded)
        loaded = preview.loaded
        # What exists of a job of that name is no news then.
        note_existing = _ignore if preview.is_taken else note
        others = [await _dry_run(http, resource.with_model(dict), body, note) for resource, body in loaded.companions]
        kind = replace(framework.resource, version=str(loaded.job["apiVersion"]).rpartition("/")[2]).with_model(dict)
        job = await _dry_run(http, kind, loaded.job, note_existing)
        notes = _ChildNotes(note, note_existing)
        below_job = [await _dry_run_child(http, body, notes) for body in child_objects(framework, job, logs)]
    return DryRun(framework, [*others, job, *below_job])


async def warn_of_missing(target: ClusterTarget, several: Sequence[LoadedJob], clock: Clock, note: Notify) -> None:
    """Warns of objects that the jobs use and that are neither in the cluster nor in FILE."""
    brought = {
        (resource.kind, str(body["metadata"].get("name"))) for each in several for resource, body in each.companions
    }
    async with target.writing(clock) as http:
        for loaded in several:
            for problem in await missing_dependencies(http, loaded.job, brought, loaded.missing_object_problem):
                note(f"warning: {problem}")
            companions = [body for each in several for _, body in each.companions]
            for problem in () if target.is_local else await unbindable_claims(http, loaded.job, companions):
                note(f"warning: {problem}")


async def _dry_run(http: HttpClient, resource: Resource[RawObject], body: JsonObject, note: Notify) -> JsonObject:
    label = f"{resource.kind.lower()}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
    try:
        found = await http.dry_run_create(resource, body)
    except AlreadyExists:
        note(f"{label} already exists; showing FILE's version; `diff` shows what submitting would change")
        found = dict(body)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _ChildNotes:
    """Where notes about the objects of the operator go: warnings, and that one exists already."""

    warn: Notify
    existing: Notify


async def _dry_run_child(http: HttpClient, body: JsonObject, notes: _ChildNotes) -> JsonObject:
    """Tries an object that the operator would create. A user who may submit jobs may lack the right to create pods."""
    resource = _KINDS[body["kind"]]
    label = f"{resource.kind.lower()}/{body['metadata']['name']}"
    try:
        found = await http.dry_run_create(resource, body)
        return {"apiVersion": "v1", "kind": resource.kind, **found}
    except AlreadyExists:
        notes.existing(f"{label} already exists")
    except Forbidden as error:
        notes.warn(f"warning: you can't create {label} yourself: {error.summary}")
    except ApiError as error:
        notes.warn(f"warning: the server rejects {label}: {error.summary}")
    return body


def printable_objects(trial: DryRun) -> Sequence[JsonObject]:
    """Returns the objects as a user could write them: without the values of Secrets, kubectl's annotation, and those
    by which a run on this machine names the current folder.
    """
    return [without_template_annotations(with_secrets_hidden(body), LOCAL_ANNOTATIONS) for body in trial.objects]


def object_names(trial: DryRun) -> Iterator[str]:
    """Yields the objects' names like kubectl: `service/digits-worker-0`."""
    for body in trial.objects:
        group = str(body["apiVersion"]).rpartition("/")[0]
        kind = f"{body['kind'].lower()}{'.' + group if group else ''}"
        yield f"{kind}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
