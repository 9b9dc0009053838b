"""What a debug dump holds, gathered from a cluster and this machine; taking secrets out of it is `redaction`'s."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import convert

from tarragon import __version__
from tarragon.cli.debugdump.redaction import Redactor
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.leftovers import used
from tarragon.cli.jobview.target import Looker, Target
from tarragon.cli.options.formats import yaml_text
from tarragon.cli.targets.stored_logs import as_written, runs_of_job
from tarragon.client.errors import ApiError
from tarragon.client.port import LogOptions, Selection
from tarragon.kube.core import CONFIG_MAPS, EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES
from tarragon.kube.meta import Json, JsonObject, Key, OwnerReference, Resource

TAIL = 1000
"""Lines of each log."""
HOME = "tarragon-system"
OPERATOR = "app.kubernetes.io/name=tarragon"


@dataclass(slots=True)
class Dump:
    """Texts by the name of their file; `missing`: what could not be had, with the reason."""

    redactor: Redactor
    objects: dict[str, Sequence[JsonObject]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def files(self) -> Mapping[str, str]:
        """Everything, without secrets, and last the page that says so."""
        found = {name: self._yaml(bodies) for name, bodies in self.objects.items()}
        found |= {name: self.redactor.text(text) for name, text in self.texts.items()}
        return {**found, "README.txt": self.redactor.text(_page(found, self.missing, self.redactor.count))}

    def _yaml(self, bodies: Sequence[JsonObject]) -> str:
        return "\n---\n".join(yaml_text(self.redactor.object(body)) for body in bodies) + "\n"


async def gather(where: Target, looker: Looker, jobs: Sequence[Known], dump: Dump) -> None:
    """Of these jobs: their objects, those beside them, events, and the ends of their logs."""
    namespace = jobs[0].key.namespace if jobs else where.namespace
    dump.objects["jobs.yaml"] = [
        {"apiVersion": job.object.api_version, "kind": job.framework.kind, **await _whole(looker, job)} for job in jobs
    ]
    for resource in (PODS, SERVICES, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, EVENTS):
        dump.objects[f"{resource.plural}.yaml"] = await _all(looker, resource.reading(dict), namespace, jobs, dump)
    dump.objects["nodes.yaml"] = await _all(looker, NODES.reading(dict), "", (), dump)
    for bodies in dump.objects.values():
        dump.redactor.learn_from(list(bodies))
    await _learn_secrets(looker, jobs, dump)
    dump.texts["versions.json"] = json.dumps(versions(), indent=2)
    if where.nodes is not None:
        dump.texts |= {f"logs/{name}": text for job in jobs for name, text in _kept(where.nodes, job)}
    else:
        await _logs(where, dump.objects["pods.yaml"], dump)


def versions() -> JsonObject:
    return {
        "tarragon": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


async def _whole(looker: Looker, job: Known) -> dict[str, Json]:
    found: dict[str, Json] = await looker.get(job.framework.resource.reading(dict), job.key)
    return found


async def _all(
    looker: Looker, resource: Resource[dict[str, Json]], namespace: str, jobs: Sequence[Known], dump: Dump
) -> Sequence[JsonObject]:
    """Those that have to do with the jobs: owned by them, or about them or their pods by name."""
    try:
        found = (await looker.list(resource, Selection(namespace=namespace))).items
    except ApiError as error:
        dump.missing.append(f"{resource.plural}: {error.what}")
        return []
    kept = [each for each in found if not jobs or any(_is_about(each, job) for job in jobs)]
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in kept]


def _is_about(body: JsonObject, job: Known) -> bool:
    metadata = body["metadata"]
    owners = convert(metadata.get("ownerReferences") or [], list[OwnerReference])
    about: Json = body.get("involvedObject") or body.get("regarding") or {}
    uses = {name for _, name in used({"spec": job.object.spec})}
    return (
        any(owner.identity(metadata.get("namespace", "")) == job.as_owner for owner in owners)
        or about.get("uid") == job.uid
        or str(about.get("name", "")).startswith(f"{job.key.name}-")
        or (body.get("involvedObject") is None and metadata["name"] in uses)
    )


async def _learn_secrets(looker: Looker, jobs: Sequence[Known], dump: Dump) -> None:
    """Their values, where they may be read: only to find them in logs. They are in no file."""
    names = {name for job in jobs for kind, name in used({"spec": job.object.spec}) if kind == "Secret"}
    names |= set(_named_secrets([{"spec": job.object.spec} for job in jobs]))
    for name in sorted(names):
        try:
            found = await looker.get(SECRETS.reading(dict), Key(jobs[0].key.namespace, name))
        except ApiError as error:
            dump.missing.append(f"the values of the Secret {name}, to look for them in the logs: {error.what}")
        else:
            dump.redactor.learn_from({"kind": "Secret", **found})


def _named_secrets(value: Json) -> Iterator[str]:
    """Of variables and of pulls."""
    if isinstance(value, list):
        for each in value:
            yield from _named_secrets(each)
    elif isinstance(value, Mapping):
        for name in ("secretKeyRef", "secretRef"):
            if isinstance(value.get(name), Mapping) and isinstance(value[name].get("name"), str):
                yield value[name]["name"]
        for inner in value.values():
            yield from _named_secrets(inner)


def _kept(nodes: Path, job: Known) -> Iterator[tuple[str, str]]:
    for run in runs_of_job(nodes, job):
        yield f"{run.pod}-{run.container}-{run.number}.log", "\n".join([*as_written(run)[-TAIL:], ""])


async def _logs(where: Target, pods: Sequence[JsonObject], dump: Dump) -> None:
    async with where.watching() as cluster:
        for pod in pods:
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            for container in pod["spec"]["containers"]:
                options = LogOptions(container=container["name"], tail_lines=TAIL, timestamps=True)
                await _log(cluster.pod_log(key, options), f"logs/{key.name}-{container['name']}.log", dump)
        try:
            running = await cluster.list(PODS, Selection(namespace=HOME, labels=OPERATOR))
        except ApiError as error:
            dump.missing.append(f"the operator's log: {error.what}")
            return
        for each in running.items:
            options = LogOptions(tail_lines=TAIL)
            await _log(cluster.pod_log(each.metadata.key, options), f"operator/{each.metadata.name}.log", dump)


async def _log(chunks: object, name: str, dump: Dump) -> None:
    try:
        dump.texts[name] = b"".join([chunk async for chunk in chunks]).decode(errors="replace")  # type: ignore[attr-defined]
    except ApiError as error:
        dump.missing.append(f"{name}: {error.what}")


def _page(files: Mapping[str, str], missing: Sequence[str], count: int) -> str:
    inside = "\n".join(f"  {name} ({len(text.encode()):,} bytes)" for name, text in sorted(files.items()))
    left_out = "\n".join(f"  {each}" for each in missing) or "  nothing that was looked for"
    return (
        "What `tarragon debug-dump` has gathered.\n\n"
        f"Inside:\n{inside}\n\n"
        f"Left out, because it could not be had:\n{left_out}\n\n"
        f"Taken out, {count} times, as ***: values of Secrets (also in logs, in base64, hex, URLs and JSON); values\n"
        "of variables with names such as TOKEN, PASSWORD, KEY; what looks like a key or a token; passwords in URLs.\n"
        "Not in it at all: kubeconfigs, Secrets, service account tokens, volumes. A secret that a program prints\n"
        "under no such name, and that no Secret holds, nobody can tell from other words: look through the logs\n"
        "before sending.\n"
    )
