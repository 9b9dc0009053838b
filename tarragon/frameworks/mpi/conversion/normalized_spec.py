"""A form of an MPIJob's spec in which generations can be compared: replicas by role, policies in one place.

Nothing is converted or left out: `denormalize` returns exactly what `normalize` was given.

    generation  the name of the generation, which defines the defaults
    groups      role -> the fields of its replicas; `word` is the type as in the manifest. The only template of a
                job is that of its worker, or without workers that of its launcher; `unscaled` are the fields that
                `kubectl scale` has overridden
    policy      cleanPodPolicy and the like, wherever they are in the spec
    rest        all other fields of spec
    notes       nothing: no annotation replaces a field
    words       fields that the manifest spells differently
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import RUN_POLICY
from tarragon.frameworks.kubeflow.fields import WORKER as WORKER_TYPE
from tarragon.frameworks.mpi.conversion.generations import MPIJobGeneration
from tarragon.frameworks.mpi.fields import LAUNCHER as LAUNCHER_TYPE
from tarragon.frameworks.mpi.fields import SpecField, V1Alpha1Field
from tarragon.job.model import ReplicaType
from tarragon.kube.merge_patch import without_nulls
from tarragon.kube.meta import Json, JsonObject

LAUNCHER, WORKER = "launcher", "worker"
TYPES = {LAUNCHER: LAUNCHER_TYPE, WORKER: WORKER_TYPE}

_UNSCALED = "unscaled"
_CAPITALS = {name.lower(): name.value for name in V1Alpha1Field}
_TOTALS = {
    V1Alpha1Field.GPUS.value: V1Alpha1Field.GPUS_PER_NODE.value,
    V1Alpha1Field.UNITS.value: V1Alpha1Field.UNITS_PER_NODE.value,
}
"""The fields that stand for a number of workers, and those with the size of one."""


def normalize(spec: JsonObject, generation: MPIJobGeneration, _: Mapping[str, str]) -> NormalizedSpec:
    """The keyed form of a valid spec. Null fields are the same as missing ones and are left out."""
    fields: dict[str, Json] = dict(without_nulls(spec))
    words: dict[str, str] = {}
    if generation.has_one_template:
        fields, words = _canonical(fields)
        groups = _of_template(fields)
    else:
        groups = {word.lower(): {"word": word, **each} for word, each in fields.pop(SpecField.REPLICAS, {}).items()}
    if generation.has_nested_policies:
        # An empty runPolicy stays, because it has no policy to restore.
        policy = fields.pop(RUN_POLICY) if fields.get(RUN_POLICY) else {}
    else:
        policy = {name: fields.pop(name) for name in list(fields) if name in generation.effective_flat_policies}
    return {
        "generation": generation.name,
        "groups": groups,
        "policy": policy,
        "rest": fields,
        "notes": {},
        "words": words,
    }


def denormalize(found: NormalizedSpec, generation: MPIJobGeneration) -> dict[str, Json]:
    policy = found["policy"]
    if generation.has_nested_policies:
        policy = {RUN_POLICY: policy} if policy else {}
    fields = {**found["rest"], **policy}
    if generation.has_one_template:
        whole = _with_template(found["groups"], fields)
        return {found["words"].get(name, name): value for name, value in whole.items()}
    groups = {
        group.get("word") or str(TYPES[role]): {name: value for name, value in group.items() if name != "word"}
        for role, group in found["groups"].items()
    }
    return {**fields, SpecField.REPLICAS.value: groups}


def type_of(role: str) -> ReplicaType:
    return TYPES[role]


def _canonical(fields: JsonObject) -> tuple[dict[str, Json], dict[str, str]]:
    """The fields in their usual capitals, and the original spellings of those that were renamed."""
    names = {name: _CAPITALS.get(name.lower(), name) for name in fields}
    words = {known: name for name, known in names.items() if known != name and known not in fields}
    return {(names[name] if names[name] in words else name): value for name, value in fields.items()}, words


def _of_template(fields: dict[str, Json]) -> dict[str, Json]:
    """Remove the template and the number of workers from the fields, and return them as groups."""
    template = {name: fields.pop(name) for name in (V1Alpha1Field.TEMPLATE.value,) if name in fields}
    unscaled = {name: fields.pop(name) for name in (V1Alpha1Field.WORKERS.value,) if name in fields}
    scaled = (fields.get(SpecField.REPLICAS) or {}).get(WORKER_TYPE, {}).get("replicas")
    number = unscaled if scaled is None else {"replicas": scaled, _UNSCALED: unscaled}
    has_number = bool(number.get("replicas")) or (scaled is None and any(name in fields for name in _TOTALS))
    if has_number or fields.get(SpecField.ELASTIC_POLICY):
        return {WORKER: {**template, **number}}
    return {LAUNCHER: template, **({WORKER: number} if number else {})}


def _with_template(groups: JsonObject, fields: JsonObject) -> dict[str, Json]:
    """The fields of spec with those of the groups, which may change the fields that stand for a number of workers."""
    workers = groups.get(WORKER, {})
    template = {
        name: group[name]
        for group in (groups.get(LAUNCHER, {}), workers)
        for name in (V1Alpha1Field.TEMPLATE.value,)
        if name in group
    }
    replicas = workers.get("replicas")
    if _UNSCALED in workers and SpecField.REPLICAS in fields:
        specs = fields[SpecField.REPLICAS]
        scaled = {**specs, WORKER_TYPE: {**specs.get(WORKER_TYPE, {}), "replicas": replicas or 0}}
        return {**fields, **template, **workers[_UNSCALED], SpecField.REPLICAS.value: scaled}
    if replicas is None:
        return {**fields, **template}
    total = next((name for name in _TOTALS if name in fields), None)
    if total is None:
        return {**fields, **template, V1Alpha1Field.WORKERS.value: replicas}
    # The number of workers was edited in another generation: both fields together are invalid.
    size = min(fields[total], fields.get(_TOTALS[total], 1))
    number = {total: replicas * size, _TOTALS[total]: size} if replicas else {V1Alpha1Field.WORKERS.value: 0}
    return {
        **{name: value for name, value in fields.items() if name not in {total, _TOTALS[total]}},
        **template,
        **number,
    }
