"""Normalizes two manifests of one generation for a diff, without differences in defaults and server fields."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import PolicyField
from tarragon.frameworks.manifest_metadata import annotations_of, with_annotations
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS, ApiGeneration
from tarragon.frameworks.tensorflow.conversion.json_changes import diff
from tarragon.frameworks.tensorflow.conversion.metadata import manifest
from tarragon.frameworks.tensorflow.conversion.normalized_spec import CHIEF, NormalizedSpec, denormalize, normalize
from tarragon.frameworks.tensorflow.dialects.all_dialects import DIALECT_BY_NAME
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, SpecField
from tarragon.job.model import RestartPolicy
from tarragon.kube.merge_patch import without_nulls
from tarragon.kube.meta import Json, JsonObject


def normalize_for_diff(live: JsonObject, new: JsonObject, name: str) -> tuple[JsonObject, JsonObject]:
    """Both manifests for a diff. If one omits a field that has its default in the other, both omit it."""
    generation = GENERATIONS[name]
    uid = (live.get("metadata") or {}).get("uid", "")
    before, after = (normalize(each["spec"], generation) for each in (live, new))
    _call_alike(before, after)
    full = [_filled(found, generation, each, uid) for found, each in ((before, live), (after, new))]
    specs = _quiet(before, after, full[1]), _quiet(after, before, full[0])
    young = _whole(new, specs[1], generation)
    return _aligned(_whole(live, specs[0], generation), young), young


def _whole(found: JsonObject, spec: NormalizedSpec, generation: ApiGeneration) -> JsonObject:
    """The whole manifest, without the annotations that keep fields of other generations."""
    fields = {"apiVersion": generation.api_version, "kind": generation.kind, "spec": denormalize(spec, generation)}
    whole: JsonObject = without_nulls({**manifest(found), **fields})
    extras = {each.extra_annotation for each in GENERATIONS.values()}
    kept = {name: text for name, text in annotations_of(whole).items() if name not in extras}
    return with_annotations(whole, kept)


def _filled(found: NormalizedSpec, generation: ApiGeneration, whole: JsonObject, uid: str) -> NormalizedSpec:
    """The spec with all defaults filled in."""
    dialect = DIALECT_BY_NAME[generation.name]
    metadata = {**(whole.get("metadata") or {}), "uid": uid}
    job = dialect.decode({**whole, "metadata": metadata}).job
    spec = denormalize(found, generation)
    if job is not None:
        found = normalize({**spec, **dialect.default_fields(job, spec)}, generation)
    groups = {role: {**_of_group(role, generation), **group} for role, group in found["groups"].items()}
    policy = {PolicyField.CLEAN_POD_POLICY.value: generation.clean_pods.value, PolicyField.SUSPEND.value: False}
    rest = {SpecField.SUCCESS_POLICY.value: "", SpecField.DYNAMIC_WORKER.value: False}
    return {**found, "groups": groups, "policy": {**policy, **found["policy"]}, "rest": {**rest, **found["rest"]}}


def _of_group(role: str, generation: ApiGeneration) -> dict[str, Json]:
    if not generation.is_list:
        return {"replicas": 1, "restartPolicy": RestartPolicy.NEVER.value}
    return {"replicas": 1, "tfPort": DEFAULT_PORT, **({"word": "MASTER"} if role == CHIEF else {})}


def _call_alike(before: NormalizedSpec, after: NormalizedSpec) -> None:
    """Use the spelling of the new manifest in both: `worker` and `Worker`, `tf_port` and `tfPort` are the same."""
    before["words"] = after["words"]
    if sorted(before.get("order", ())) == sorted(after.get("order", ())) and "order" in after:
        before["order"] = after["order"]
    for role, group in before["groups"].items():
        twin = after["groups"].get(role, {})
        group.pop("words", None)
        if "words" in twin:
            group["words"] = twin["words"]
        if str(twin.get("word", "")).lower() == str(group.get("word", "")).lower():
            group["word"] = twin.get("word", group.get("word"))


def _quiet(value: Json, other: Json, full: Json) -> Json:
    """The value without fields that `other` omits but has by default. `full` is `other` with defaults filled in."""
    if isinstance(value, dict) and isinstance(other, dict) and isinstance(full, dict):
        return {
            name: _quiet(each, other.get(name), full.get(name))
            for name, each in value.items()
            if name in other or name not in full or list(diff(each, full[name]))
        }
    lists = [each for each in (value, other, full) if isinstance(each, list)]
    if len(lists) == len((value, other, full)) and len(value) == len(other) == len(full):
        return list(map(_quiet, value, other, full))
    return value


def _aligned(value: Json, like: Json) -> Json:
    """The value with its fields in the order of `like`, because servers sort them."""
    if isinstance(value, dict) and isinstance(like, dict):
        order = [*(name for name in like if name in value), *(name for name in value if name not in like)]
        return {name: _aligned(value[name], like.get(name)) for name in order}
    if isinstance(value, list) and isinstance(like, list):
        return [_aligned(each, like[index] if index < len(like) else None) for index, each in enumerate(value)]
    return value
