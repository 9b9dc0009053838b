"""Collects the contents of a debug dump from a cluster and this machine. `redaction` removes secrets from it."""

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
"""The number of last lines of each log."""
HOME = "tarragon-system"
OPERATOR = "app.kubernetes.io/name=tarragon"


@dataclass(slots=True)
class Dump:
    """The contents by file name. `missing` lists what could not be read, with the reason."""

    redactor: Redactor
    objects: dict[str, Sequence[JsonObject]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def files(self) -> Mapping[str, str]:
        """Return all files with secrets redacted, and last a README.txt about them."""
        contents = {name: self._yaml(bodies) for name, bodies in self.objects.items()}
        contents |= {name: self.redactor.text(text) for name, text in self.texts.items()}
        return {**contents, "README.txt": self.redactor.text(_readme(contents, self.missing, self.redactor.count))}

    def _yaml(self, bodies: Sequence[JsonObject]) -> str:
        return "\n---\n".join(yaml_text(self.redactor.object(body)) for body in bodies) + "\n"


async def gather(where: Target, looker: Looker, jobs: Sequence[Known], dump: Dump) -> None:
    """Collect the jobs, their related objects and events, and the last lines of their logs."""
    namespace = jobs[0].key.namespace if jobs else where.namespace
    dump.objects["jobs.yaml"] = [
        {"apiVersion": job.object.api_version, "kind": job.framework.kind, **await _manifest(looker, job)}
        for job in jobs
    ]
    for resource in (PODS, SERVICES, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, EVENTS):
        dump.objects[f"{resource.plural}.yaml"] = await _related(looker, resource.reading(dict), namespace, jobs, dump)
    dump.objects["nodes.yaml"] = await _related(looker, NODES.reading(dict), "", (), dump)
    for bodies in dump.objects.values():
        dump.redactor.learn_from(list(bodies))
    await _learn_secrets(looker, jobs, dump)
    dump.texts["versions.json"] = json.dumps(versions(), indent=2)
    if where.nodes is not None:
        dump.texts |= {f"logs/{name}": text for job in jobs for name, text in _stored_logs(where.nodes, job)}
    else:
        await _logs(where, dump.objects["pods.yaml"], dump)


def versions() -> JsonObject:
    return {
        "tarragon": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


async def _manifest(looker: Looker, job: Known) -> dict[str, Json]:
    found: dict[str, Json] = await looker.get(job.framework.resource.reading(dict), job.key)
    return found


async def _related(
    looker: Looker, resource: Resource[dict[str, Json]], namespace: str, jobs: Sequence[Known], dump: Dump
) -> Sequence[JsonObject]:
    """Return the objects related to the jobs: owned by them, used by them, or about them or their pods by name."""
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
    """Read the values of Secrets that the jobs use, to redact them in logs. Secrets are not part of the dump."""
    names = {name for job in jobs for kind, name in used({"spec": job.object.spec}) if kind == "Secret"}
    names |= set(_named_secrets([{"spec": job.object.spec} for job in jobs]))
    for name in sorted(names):
        try:
            found = await looker.get(SECRETS.reading(dict), Key(jobs[0].key.namespace, name))
        except ApiError as error:
            dump.missing.append(
                f"Secret {name} could not be read, so its values are not redacted in logs: {error.what}"
            )
        else:
            dump.redactor.learn_from({"kind": "Secret", **found})


def _named_secrets(value: Json) -> Iterator[str]:
    """Yield the names of the Secrets in `secretKeyRef` and `secretRef` fields."""
    if isinstance(value, list):
        for each in value:
            yield from _named_secrets(each)
    elif isinstance(value, Mapping):
        for name in ("secretKeyRef", "secretRef"):
            if isinstance(value.get(name), Mapping) and isinstance(value[name].get("name"), str):
                yield value[name]["name"]
        for inner in value.values():
            yield from _named_secrets(inner)


def _stored_logs(nodes: Path, job: Known) -> Iterator[tuple[str, str]]:
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


def _readme(files: Mapping[str, str], missing: Sequence[str], count: int) -> str:
    contents = "\n".join(f"  {name} ({len(text.encode()):,} bytes)" for name, text in sorted(files.items()))
    not_included = "\n".join(f"  {each}" for each in missing) or "  nothing"
    return (
        "Files collected by `tarragon debug-dump`.\n\n"
        f"Contents:\n{contents}\n\n"
        f"Not included, because it could not be read:\n{not_included}\n\n"
        f"Redacted as ***, {count} times: values of Secrets (also in logs, and encoded in base64, hex, URLs or JSON);\n"
        "variables named like TOKEN, PASSWORD or KEY; text that looks like a key or a token; passwords in URLs.\n"
        "Never included: kubeconfigs, Secrets, service account tokens, volumes. A secret that a program prints\n"
        "without such a name, and that is in no Secret, can't be recognized: review the logs before you send\n"
        "this archive.\n"
    )
