"""`--dry-run`: every object that a FILE would make, by the operator's own rules, and made nowhere."""

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
"""Of a job that is not there yet. Names of v1alpha1 and mlkube.io are made of it."""
Whole = dict[str, Json]

_KINDS: Mapping[str, Resource[Whole]] = {
    resource.kind: resource.reading(dict) for resource in (CONFIG_MAPS, SERVICES, PODS)
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Of one FILE's job: the objects in the order in which they would be made."""

    framework: Framework
    objects: Sequence[JsonObject]


def by_client(loaded: Loaded, logs: Form = Form.TEXT) -> Trial:
    """Nothing is asked of any cluster: defaults and names that one would give are missing."""
    job = {"apiVersion": loaded.framework.resource.api_version, "kind": loaded.framework.kind, **loaded.job}
    others = [body for _, body in loaded.others]
    return Trial(loaded.framework, [*others, job, *children(loaded.framework, job, logs)])


def children(framework: Framework, job: JsonObject, logs: Form) -> Iterator[JsonObject]:
    """ConfigMaps, Services and pods of a gang of the size that it wishes for, and its TensorBoard."""
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
    """The same, as the API server's admission would let it be. Raises what it refuses of the FILE itself."""
    framework = loaded.framework
    async with where.changing(clock) as http:
        made = [await _tried(http, resource.reading(dict), body, note) for resource, body in loaded.others]
        kind = replace(framework.resource, version=str(loaded.job["apiVersion"]).rpartition("/")[2]).reading(dict)
        job = await _tried(http, kind, loaded.job, note)
        below = [await _child(http, body, note) for body in children(framework, job, logs)]
    return Trial(framework, [*made, job, *below])


async def missing_for(where: Target, several: Sequence[Loaded], clock: Clock, note: Note) -> None:
    """Warn of what these jobs name that is neither in the cluster nor in FILE."""
    brought = {(resource.kind, str(body["metadata"].get("name"))) for each in several for resource, body in each.others}
    async with where.changing(clock) as http:
        for loaded in several:
            for problem in await missing(http, loaded.job, brought):
                note(f"warning: {problem}")


async def _tried(http: Http, resource: Resource[Whole], body: JsonObject, note: Note) -> JsonObject:
    label = f"{resource.kind.lower()}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
    try:
        found = await http.tried(resource, body)
    except AlreadyExists:
        note(f"{label} is there already: this is what FILE says of it; `diff` tells what submitting would change")
        found = dict(body)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


async def _child(http: Http, body: JsonObject, note: Note) -> JsonObject:
    """What the operator would make. Whoever submits jobs need not be allowed to make pods."""
    resource = _KINDS[body["kind"]]
    label = f"{resource.kind.lower()}/{body['metadata']['name']}"
    try:
        found = await http.tried(resource, body)
        return {"apiVersion": "v1", "kind": resource.kind, **found}
    except AlreadyExists:
        note(f"{label} is there already")
    except Forbidden as error:
        note(f"warning: {label} is refused, if you made it yourself: {error.what}")
    except ApiError as error:
        note(f"warning: {label} is refused: {error.what}")
    return body


def shown(trial: Trial) -> Sequence[JsonObject]:
    """Without the values of secrets, and without what only kubectl reads."""
    return [hidden(body) for body in trial.objects]


def names(trial: Trial) -> Iterator[str]:
    """As kubectl has them: `service/digits-worker-0`."""
    for body in trial.objects:
        group = str(body["apiVersion"]).rpartition("/")[0]
        kind = f"{body['kind'].lower()}{'.' + group if group else ''}"
        yield f"{kind}/{body['metadata'].get('name') or body['metadata'].get('generateName')}"
