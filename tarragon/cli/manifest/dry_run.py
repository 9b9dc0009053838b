"""`--dry-run`: builds every object that a FILE leads to, by the operator's own rules, without creating any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tarragon.base.clock import Clock
from tarragon.cli.jobview.target import Note, Target
from tarragon.cli.manifest.comparison import hidden
from tarragon.cli.manifest.dependencies import missing
from tarragon.cli.manifest.loading import Loaded
from tarragon.client.errors import AlreadyExists, ApiError, Forbidden
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import CONFIG_MAPS, PODS, SERVICES
from tarragon.kube.meta import Json, JsonObject, Resource
from tarragon.plan.input.decode_and_validate import intake
from tarragon.plan.objects import desired
from tarragon.plan.objects.desired import Blueprint
from tarragon.plan.objects.logs import Form
from tarragon.plan.objects.settings import Settings
from tarragon.plan.reconcile import tensorboard

if TYPE_CHECKING:
    from tarragon.client.http.client import Http

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
"""The UID of a job that does not exist yet. Names in v1alpha1 and mlkube.io contain the UID."""
Whole = dict[str, Json]

_KINDS: Mapping[str, Resource[Whole]] = {
    resource.kind: resource.reading(dict) for resource in (CONFIG_MAPS, SERVICES, PODS)
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The objects of one job, in the order in which they would be created."""

    framework: Framework
    objects: Sequence[JsonObject]


def by_client(loaded: Loaded, logs: Form = Form.TEXT) -> Trial:
    """Builds the objects without a cluster: defaults and names that the server sets are missing."""
    job = {"apiVersion": loaded.framework.resource.api_version, "kind": loaded.framework.kind, **loaded.job}
    others = [body for _, body in loaded.others]
    return Trial(loaded.framework, [*others, job, *children(loaded.framework, job, logs)])


def children(framework: Framework, job: JsonObject, logs: Form) -> Iterator[JsonObject]:
    """Yields the ConfigMaps, Services and pods of the job at its requested size, and of its TensorBoard."""
    metadata = job["metadata"]
    named = {**metadata, "uid": metadata.get("uid") or UNKNOWN_UID}
    if not named.get("name"):
        named["name"] = f"{named.get('generateName', '')}xxxxx"
    taken = intake(framework, {**job, "metadata": named})
    if taken.job is None or taken.dialect is None:
        return
    plan = Blueprint(
        framework=framework,
        dialect=taken.dialect,
        job=taken.job,
        size=taken.job.wished(),
        settings=Settings(logs=logs),
    )
    replicas = list(desired.in_start_order(framework, taken.job, taken.job.replicas(plan.size)))
    for resource, bodies in (
        (CONFIG_MAPS, [*desired.config_maps(plan), *desired.scripts_of_logs(plan)]),
        (SERVICES, desired.services(plan, (replica for _, replica in desired.service_names(plan)))),
        (PODS, desired.pods(plan, replicas)),
        (SERVICES, tensorboard.services(plan)),
        (PODS, tensorboard.pods(plan)),
    ):
        yield from ({"apiVersion": "v1", "kind": resource.kind, **body} for body in bodies)


async def by_server(where: Target, loaded: Loaded, clock: Clock, note: Note, logs: Form = Form.TEXT) -> Trial:
    """Builds the objects with a server-side dry run. Raises the server's error if it rejects an object of FILE."""
    framework = loaded.framework
    async with where.changing(clock) as http:
        others = [await _dry_run(http, resource.reading(dict), body, note) for resource, body in loaded.others]
        kind = replace(framework.resource, version=str(loaded.job["apiVersion"]).rpartition("/")[2]).reading(dict)
        job = await _dry_run(http, kind, loaded.job, note)
        below_job = [await _dry_run_child(http, body, note) for body in children(framework, job, logs)]
    return Trial(framework, [*others, job, *below_job])


async def missing_for(where: Target, several: Sequence[Loaded], clock: Clock, note: Note) -> None:
    """Warns of objects that the jobs use and that are neither in the cluster nor in FILE."""
    brought = {(resource.kind, str(body["metadata"].get("name"))) for each in several for resource, body in each.others}
    async with where.changing(clock) as http:
        for loaded in several:
            for problem in await missing(http, loaded.job, brought):
                note(f"warning: {problem}")


async def _dry_run(http: Http, resource: Resource[Whole], body: JsonObject, note: Note) -> JsonObject:
    label = f"{resource.kind.lower()}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
    try:
        found = await http.tried(resource, body)
    except AlreadyExists:
        note(f"{label} already exists; showing FILE's version; `diff` shows what submitting would change")
        found = dict(body)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


async def _dry_run_child(http: Http, body: JsonObject, note: Note) -> JsonObject:
    """Tries an object that the operator would create. A user who may submit jobs may lack the right to create pods."""
    resource = _KINDS[body["kind"]]
    label = f"{resource.kind.lower()}/{body['metadata']['name']}"
    try:
        found = await http.tried(resource, body)
        return {"apiVersion": "v1", "kind": resource.kind, **found}
    except AlreadyExists:
        note(f"{label} already exists")
    except Forbidden as error:
        note(f"warning: you can't create {label} yourself: {error.what}")
    except ApiError as error:
        note(f"warning: the server rejects {label}: {error.what}")
    return body


def shown(trial: Trial) -> Sequence[JsonObject]:
    """Returns the objects without the values of Secrets and without kubectl's annotation."""
    return [hidden(body) for body in trial.objects]


def names(trial: Trial) -> Iterator[str]:
    """Yields the objects' names like kubectl: `service/digits-worker-0`."""
    for body in trial.objects:
        group = str(body["apiVersion"]).rpartition("/")[0]
        kind = f"{body['kind'].lower()}{'.' + group if group else ''}"
        yield f"{kind}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
