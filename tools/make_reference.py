#!/usr/bin/env python3
"""Write docs/reference: a page a kind, from the schema, the meanings of its fields, and what the dialects say of each.

python tools/make_reference.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.frameworks.tensorflow import default_server
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.reference import CONDITIONS, KNOWN_BY, OF_STATUS
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.job.model import TrainingJob
from tarragon.job.status import JobStatus
from tools.written import write_or_check

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
HEAD = "<!-- Written by tools/make_reference.py; do not edit. -->"

TAKEN, IDLE, UNKNOWN = "yes", "idle", "no"
LISTS = ("spec.replicaSpecs", "spec.replica_specs")
LEGEND = f"""\
What becomes of a field is what the code that reads manifests said of it when this page was made:

- **{TAKEN}**: it counts.
- **{IDLE}**: known, and without effect here; `validate`, `run` and `submit` warn, and name the remedy.
- **{UNKNOWN}**: not a field of this generation. The command line refuses the manifest, with the nearest name that
  exists; the operator runs the job without it, and says so in an Event and a condition.

The generations that share `kubeflow.org/v1` take each other's fields: those decide which of them a job is of.
"""

# A value for each field, that any generation which has it takes.
SAMPLES: Mapping[str, Any] = {
    "replicas": 1,
    "restartPolicy": "OnFailure",
    "template": {"spec": {"containers": [{"name": "tensorflow", "image": "a", "command": ["b"]}]}},
    "cleanPodPolicy": "All",
    "successPolicy": "AllWorkers",
    "tfReplicaType": "WORKER",
    "tf_replica_type": "WORKER",
    "terminationPolicy": {"chief": {"replicaName": "WORKER", "replicaIndex": 0}},
    "tensorboard": {"logDir": "/a"},
}
BY_TYPE: Mapping[str, Any] = {"string": "a", "integer": 1, "boolean": True, "object": {}}

# What a job has of which its manifest says nothing, by the last name of the field.
DEFAULTS: Mapping[str, Callable[[TrainingJob], str]] = {
    "replicas": lambda job: str(job.groups[0].wish),
    "restartPolicy": lambda job: job.groups[0].restart_policy.value,
    "tfPort": lambda job: str(job.groups[0].port),
    "tf_port": lambda job: str(job.groups[0].port),
    "tfReplicaType": lambda job: job.groups[-1].type.value.upper(),
    "tf_replica_type": lambda job: job.groups[-1].type.value.upper(),
    "cleanPodPolicy": lambda job: job.run_policy.clean_pods.value,
    "ttlSecondsAfterFinished": lambda job: "never" if job.run_policy.ttl_after_finished is None else "",
    "activeDeadlineSeconds": lambda job: "no limit" if job.run_policy.active_deadline is None else "",
    "backoffLimit": lambda job: "no limit" if job.run_policy.backoff_limit is None else "",
    "suspend": lambda job: str(job.run_policy.suspend).lower(),
    "successPolicy": lambda job: job.success_policy.value or "empty",
    "enableDynamicWorker": lambda job: str(job.sparse_cluster).lower(),
    "max-instances": lambda job: "not elastic" if job.elastic is None else "",
    "min-instances": lambda job: "not elastic" if job.elastic is None else "",
    "RuntimeId": lambda job: f"{len(job.runtime_id)} characters, from the job's uid",
    "tfImage": lambda _: f"`{default_server.IMAGE}`",
    "terminationPolicy": lambda job: "MASTER 0" if job.decider is None else "",
    "serviceType": lambda _: "ClusterIP",
}


@dataclass(frozen=True, slots=True)
class Field:
    path: str
    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def shown(self) -> str:
        return self.path.removeprefix("spec.").removeprefix("status.")


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    return write_or_check(dict(pages()), arguments, "make_reference.py")


def pages() -> Iterator[tuple[Path, str]]:
    for framework in FRAMEWORKS:
        group = framework.resource.group
        name = framework.kind.lower() if framework is FRAMEWORKS[0] else f"{framework.kind.lower()}-{group}"
        yield FOLDER / f"{name}.md", "\n".join(page(framework)).rstrip() + "\n"


def page(framework: Framework) -> Iterator[str]:
    dialects = [dialect for name in GENERATIONS for dialect in framework.dialects if dialect.name == name]
    whole = schema()
    fields = [field for field in walked(whole) if field.path.startswith("spec.")]
    told = {dialect.name: {field.path: fate(dialect, field) for field in fields} for dialect in dialects}
    fields = [field for field in fields if any(told[name][field.path] != UNKNOWN for name in told)]
    yield from (HEAD, "", f"# {framework.kind} of {framework.resource.group}", "", whole["description"], "")
    explain = f"kubectl explain {framework.resource.plural}.{framework.resource.group}.spec"
    yield from (f"`{explain}` says the same of each field, where the API server publishes OpenAPI v3",)
    yield from ("(Kubernetes from 1.24 on, and the embedded one).", "")
    yield from ("## Generations", "", *generations(dialects))
    yield from ("", "## Fields of spec", "")
    columns = ("field", "type", "if not said", "meaning")
    yield from table(columns, ((f"`{one.shown}`", kind(one), default(dialects, one), said(one)) for one in fields))
    yield from ("", "## Which generation takes which field", "", LEGEND)
    heads = ("field", *(short(dialect) for dialect in dialects))
    yield from table(heads, ((f"`{one.shown}`", *(told[each.name][one.path] for each in dialects)) for one in fields))
    yield from ("", "## Status", "", *statuses(dialects, whole))


def generations(dialects: Sequence[Dialect]) -> Iterator[str]:
    """With what a job means that says nothing but what it must."""
    rows = []
    for dialect in dialects:
        job = read(dialect, plain(dialect))
        clean, restart = job.run_policy.clean_pods.value, job.groups[0].restart_policy.value
        if GENERATIONS[dialect.name].is_list:
            restart = "the template's"
        rows.append((short(dialect), f"`{dialect.api_version}`", KNOWN_BY[dialect.name], clean, restart))
    heads = ("generation", "apiVersion", "known by", "cleanPodPolicy, if not said", "restartPolicy, if not said")
    yield from table(heads, rows)


def statuses(dialects: Sequence[Dialect], whole: Mapping[str, Any]) -> Iterator[str]:
    """The fields of each generation, asked of its own writer."""
    rows = []
    for dialect in dialects:
        written = dialect.status(read(dialect, plain(dialect)), JobStatus())
        names = [*written, *(("startTime", "completionTime") if dialect.has_conditions else ())]
        rows.append((short(dialect), ", ".join(f"`{name}`" for name in names)))
    yield from table(("generation", "fields"), rows)
    yield ""
    there = {name for _, names in rows for name in re.findall(r"`(.+?)`", names)}
    yield from table(("field", "meaning"), ((f"`{name}`", OF_STATUS[name]) for name in OF_STATUS if name in there))
    yield from ("", "Conditions, which the generations without a place for them have in `tarragon.record`:", "")
    yield from table(("condition", "while true"), CONDITIONS.items())
    yield from ("", "Beside all these stands `tarragon`: what they have no place for.", "")
    ours = [field for field in walked(whole) if field.path.startswith("status.tarragon.")]
    yield from table(("field", "type", "meaning"), ((f"`{one.shown}`", kind(one), said(one)) for one in ours))


def default(dialects: Sequence[Dialect], field: Field) -> str:
    """What a job means that does not say it, as the dialects read one."""
    find = DEFAULTS.get(field.name)
    if find is None:
        return ""
    told: dict[str, list[str]] = {}
    for dialect in dialects:
        if fate(dialect, field) == TAKEN:
            told.setdefault(find(read(dialect, plain(dialect))), []).append(short(dialect))
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"{value}: {', '.join(names)}" for value, names in told.items())


def fate(dialect: Dialect, field: Field) -> str:
    """What becomes of the field in a manifest of the generation that says something about it."""
    is_list = GENERATIONS[dialect.name].is_list
    if not is_list and field.path.startswith(LISTS):
        return UNKNOWN
    manifest = plain(dialect)
    if is_list and field.path.startswith(LISTS[1]):
        manifest["spec"]["replica_specs"] = manifest["spec"].pop("replicaSpecs")
    steps = field.path.replace(".*", ".Worker").replace("[]", ".0").split(".")
    put(manifest, steps, SAMPLES.get(field.name) or BY_TYPE.get(field.schema.get("type", ""), {}))
    place = field.path.replace(".*", ".Worker").replace("[]", "[0]")
    reading = dialect.read(manifest)
    if any(place.startswith(one.path) for one in reading.unknown):
        return UNKNOWN
    return IDLE if any(place.startswith(one.path) and "no effect" in str(one) for one in reading.warnings) else TAKEN


def put(whole: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    """Where the steps lead, unless something is there."""
    at: Any = whole
    for step in steps[:-1]:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    if isinstance(at, dict):
        at.setdefault(steps[-1], deepcopy(value))


def plain(dialect: Dialect) -> dict[str, Any]:
    """The shortest manifest of the generation."""
    generation = GENERATIONS[dialect.name]
    item = {"template": deepcopy(SAMPLES["template"])}
    if generation.is_list:
        spec: dict[str, Any] = {"replicaSpecs": [{"tfReplicaType": "WORKER", **item}, {"template": item["template"]}]}
    else:
        spec = {"tfReplicaSpecs": {"Worker": item}}
    head = {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": {"name": "a"}}
    return {**head, "spec": spec}


def read(dialect: Dialect, manifest: Mapping[str, Any]) -> TrainingJob:
    job = dialect.read(manifest).job
    assert job is not None, manifest  # noqa: S101 - the manifest is ours
    return job


def walked(found: Mapping[str, Any], path: str = "") -> Iterator[Field]:
    """Each field of a schema, with its own below it."""
    for name, below in found.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        yield Field(place, below)
        for mark, inner in (("", below), (".*", below.get("additionalProperties")), ("[]", below.get("items"))):
            if isinstance(inner, dict):
                yield from walked(inner, place + mark)


def kind(field: Field) -> str:
    """The type in words."""
    found = field.schema
    if "enum" in found:
        return " ".join(f"`{word}`" if word else "empty" for word in found["enum"])
    if "items" in found:
        return "list of objects"
    if "additionalProperties" in found:
        return "map"
    least = f" from {found['minimum']}" if "minimum" in found else ""
    return f"{found.get('type', 'anything')}{least}"


def said(field: Field) -> str:
    return str(field.schema["description"])


def short(dialect: Dialect) -> str:
    return dialect.name.removeprefix("kubeflow.org/")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
