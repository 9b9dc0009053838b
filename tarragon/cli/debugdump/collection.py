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
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.leftovers import used_objects
from tarragon.cli.jobview.target import ClusterReader, ClusterTarget
from tarragon.cli.options.formats import yaml_text
from tarragon.cli.targets.stored_logs import raw_lines, runs_of_job
from tarragon.client.errors import ApiError
from tarragon.client.port import LogOptions, Selector
from tarragon.kube.core import CONFIG_MAPS, EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES
from tarragon.kube.meta import Json, JsonObject, Key, OwnerReference, Resource

LOG_TAIL_LINES = 1000
"""The number of last lines of each log."""
OPERATOR_NAMESPACE = "tarragon-system"
OPERATOR_SELECTOR = "app.kubernetes.io/name=tarragon"


@dataclass(slots=True)
class DebugDump:
    """The contents by file name. `missing` lists what could not be read, with the reason."""

    redactor: Redactor
    objects: dict[str, Sequence[JsonObject]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    not_included: list[str] = field(default_factory=list)

    def files(self) -> Mapping[str, str]:
        """Return all files with secrets redacted, and last a README.txt about them."""
        contents = {name: self._yaml(bodies) for name, bodies in self.objects.items()}
        contents |= {name: self.redactor.redact_text(text) for name, text in self.texts.items()}
        return {
            **contents,
            "README.txt": self.redactor.redact_text(_readme(contents, self.not_included, self.redactor.count)),
        }

    def _yaml(self, bodies: Sequence[JsonObject]) -> str:
        return "\n---\n".join(yaml_text(self.redactor.redact_object(body)) for body in bodies) + "\n"


async def collect(target: ClusterTarget, reader: ClusterReader, jobs: Sequence[ClusterJob], dump: DebugDump) -> None:
    """Collect the jobs, their related objects and events, and the last lines of their logs."""
    namespace = jobs[0].key.namespace if jobs else target.namespace
    dump.objects["jobs.yaml"] = [
        {"apiVersion": job.object.api_version, "kind": job.framework.kind, **await _manifest(reader, job)}
        for job in jobs
    ]
    for resource in (PODS, SERVICES, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, EVENTS):
        dump.objects[f"{resource.plural}.yaml"] = await _related(
            reader, resource.with_model(dict), namespace, jobs, dump
        )
    dump.objects["nodes.yaml"] = await _related(reader, NODES.with_model(dict), "", (), dump)
    for bodies in dump.objects.values():
        dump.redactor.add_secrets_of(list(bodies))
    await _learn_secrets(reader, jobs, dump)
    dump.texts["versions.json"] = json.dumps(versions(), indent=2)
    if target.nodes_folder is not None:
        dump.texts |= {f"logs/{name}": text for job in jobs for name, text in _stored_logs(target.nodes_folder, job)}
    else:
        await _logs(target, dump.objects["pods.yaml"], dump)


def versions() -> JsonObject:
    return {
        "tarragon": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


async def _manifest(reader: ClusterReader, job: ClusterJob) -> dict[str, Json]:
    found: dict[str, Json] = await reader.get(job.framework.resource.with_model(dict), job.key)
    return found


async def _related(
    reader: ClusterReader,
    resource: Resource[dict[str, Json]],
    namespace: str,
    jobs: Sequence[ClusterJob],
    dump: DebugDump,
) -> Sequence[JsonObject]:
    """Return the objects related to the jobs: owned by them, used by them, or about them or their pods by name."""
    try:
        found = (await reader.list(resource, Selector(namespace=namespace))).items
    except ApiError as error:
        dump.not_included.append(f"{resource.plural}: {error.summary}")
        return []
    kept = [each for each in found if not jobs or any(_is_about(each, job) for job in jobs)]
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in kept]


def _is_about(body: JsonObject, job: ClusterJob) -> bool:
    metadata = body["metadata"]
    owners = convert(metadata.get("ownerReferences") or [], list[OwnerReference])
    about: Json = body.get("involvedObject") or body.get("regarding") or {}
    uses = {name for _, name in used_objects({"spec": job.object.spec})}
    return (
        any(owner.identity(metadata.get("namespace", "")) == job.as_owner for owner in owners)
        or about.get("uid") == job.uid
        or str(about.get("name", "")).startswith(f"{job.key.name}-")
        or (body.get("involvedObject") is None and metadata["name"] in uses)
    )


async def _learn_secrets(reader: ClusterReader, jobs: Sequence[ClusterJob], dump: DebugDump) -> None:
    """Read the values of Secrets that the jobs use, to redact them in logs. Secrets are not part of the dump."""
    names = {name for job in jobs for kind, name in used_objects({"spec": job.object.spec}) if kind == "Secret"}
    names |= set(_named_secrets([{"spec": job.object.spec} for job in jobs]))
    for name in sorted(names):
        try:
            found = await reader.get(SECRETS.with_model(dict), Key(jobs[0].key.namespace, name))
        except ApiError as error:
            dump.not_included.append(
                f"Secret {name} could not be read, so its values are not redacted in logs: {error.summary}"
            )
        else:
            dump.redactor.add_secrets_of({"kind": "Secret", **found})


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


def _stored_logs(nodes: Path, job: ClusterJob) -> Iterator[tuple[str, str]]:
    for run in runs_of_job(nodes, job):
        yield f"{run.pod}-{run.container}-{run.number}.log", "\n".join([*raw_lines(run)[-LOG_TAIL_LINES:], ""])


async def _logs(target: ClusterTarget, pods: Sequence[JsonObject], dump: DebugDump) -> None:
    async with target.watching() as cluster:
        for pod in pods:
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            for container in pod["spec"]["containers"]:
                options = LogOptions(container=container["name"], tail_lines=LOG_TAIL_LINES, timestamps=True)
                await _log(cluster.pod_log(key, options), f"logs/{key.name}-{container['name']}.log", dump)
        try:
            running = await cluster.list(PODS, Selector(namespace=OPERATOR_NAMESPACE, label_selector=OPERATOR_SELECTOR))
        except ApiError as error:
            dump.not_included.append(f"the operator's log: {error.summary}")
            return
        for each in running.items:
            options = LogOptions(tail_lines=LOG_TAIL_LINES)
            await _log(cluster.pod_log(each.metadata.key, options), f"operator/{each.metadata.name}.log", dump)


async def _log(chunks: object, name: str, dump: DebugDump) -> None:
    try:
        dump.texts[name] = b"".join([chunk async for chunk in chunks]).decode(errors="replace")  # type: ignore[attr-defined]
    except ApiError as error:
        dump.not_included.append(f"{name}: {error.summary}")


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
