"""A form of a job's spec in which generations can be compared: replicas by role, policies in one place.

Nothing is converted or left out: `denormalize` returns exactly what `normalize` was given.

    generation  the name of the generation, which defines the defaults
    groups      role -> the fields of its replicas; `word` is the type as in the manifest, `unscaled` are the fields
                that `kubectl scale` has overridden
    order       the roles in the order of a list
    policy      cleanPodPolicy and the like, wherever they are in the spec
    rest        all other fields of spec
    notes       the annotations that replace fields of other generations
    words       fields that the manifest spells differently
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, WORKER
from tarragon.frameworks.tensorflow.conversion.generations import SpecLayout, TFJobGeneration
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.frameworks.tensorflow.replica_types import MASTER, ROLES
from tarragon.job.model import ReplicaType
from tarragon.job.tensorboard import IMAGE_ANNOTATION, LOG_DIR_ANNOTATION
from tarragon.kube.merge_patch import without_nulls
from tarragon.kube.meta import Json, JsonObject

CHIEF = "chief"
"""The role of a Chief and of a Master, which are two names for the same replica."""

FIELD_ANNOTATIONS = (LOG_DIR_ANNOTATION, IMAGE_ANNOTATION)

UNSCALED = "unscaled"
_WORKER = WORKER.lower()
_SPEC_SPELLINGS = {"replica_specs": SpecField.LIST.value}
_IN_ANY_CAPITALS = "RuntimeId"
_ITEM_SPELLINGS = {"tf_port": "tfPort", "tf_replica_type": "tfReplicaType"}


def normalize(spec: JsonObject, generation: TFJobGeneration, annotations: Mapping[str, str]) -> NormalizedSpec:
    """The keyed form of a valid spec. Null fields are the same as missing ones and are left out."""
    sound = without_nulls(spec)
    found = _of_list(sound, generation) if generation.is_list else _of_map(sound, generation)
    return {**found, "notes": {name: annotations[name] for name in FIELD_ANNOTATIONS if name in annotations}}


def denormalize(found: NormalizedSpec, generation: TFJobGeneration) -> dict[str, Json]:
    return _list_spec(found) if generation.is_list else _map_spec(found, generation)


def role(word: str) -> str:
    lower = word.lower()
    return CHIEF if lower == MASTER.lower() else lower


def type_of(role_: str, word: str) -> ReplicaType:
    """The replica type of a role, by its name in the manifest."""
    return next(kind for kind in ROLES if kind.lower() == (word or role_).lower())


def _of_list(spec: dict[str, Json], generation: TFJobGeneration) -> NormalizedSpec:
    ids = {name: _IN_ANY_CAPITALS for name in spec if name.lower() == _IN_ANY_CAPITALS.lower()}
    fields, words = _canonical(spec, {**_SPEC_SPELLINGS, **ids})
    groups: dict[str, Json] = {}
    for item in fields.pop(SpecField.LIST, []):
        each, spelled = _canonical(item, _ITEM_SPELLINGS)
        word = each.pop("tfReplicaType", None)
        said = {} if word is None else {"word": word}
        groups[role(word or "MASTER")] = {**said, **each, **({"words": spelled} if spelled else {})}
    scaled = (fields.get(SpecField.REPLICAS) or {}).get(WORKER, {}).get("replicas")
    if scaled is not None and _WORKER in groups:
        own = groups[_WORKER]
        unscaled = {name: value for name, value in own.items() if name == "replicas"}
        groups[_WORKER] = {**own, "replicas": scaled, UNSCALED: unscaled}
    found: NormalizedSpec = {"generation": generation.name, "groups": groups, "order": list(groups)}
    return {**found, "policy": _nested(fields), "rest": fields, "words": words}


def _of_map(spec: dict[str, Json], generation: TFJobGeneration) -> NormalizedSpec:
    fields = dict(spec)
    groups = {role(word): {"word": word, **each} for word, each in fields.pop(SpecField.REPLICAS, {}).items()}
    if generation.shape is SpecLayout.NESTED:
        policy = _nested(fields)
    else:
        policy = {name: fields.pop(name) for name in list(fields) if name in FLAT_POLICIES}
    return {"generation": generation.name, "groups": groups, "policy": policy, "rest": fields, "words": {}}


def _nested(fields: dict[str, Json]) -> dict[str, Json]:
    """Remove runPolicy from the fields and return it. An empty one stays, because it has no policy to restore."""
    found: dict[str, Json] = fields.pop(SpecField.RUN_POLICY) if fields.get(SpecField.RUN_POLICY) else {}
    return found


def _run_policy(found: NormalizedSpec) -> dict[str, Json]:
    return {SpecField.RUN_POLICY.value: found["policy"]} if found["policy"] else {}


def _list_spec(found: NormalizedSpec) -> dict[str, Json]:
    groups: dict[str, Json] = found["groups"]
    known = [each for each in found.get("order", ()) if each in groups]
    items = [_item(groups[each]) for each in (*known, *(each for each in groups if each not in known))]
    fields = {**found["rest"], **_scaled(found), **_run_policy(found), SpecField.LIST.value: items}
    return _spelled(fields, found["words"])


def _scaled(found: NormalizedSpec) -> dict[str, Json]:
    """The size beside the list, which overrides that of the list, with later edits in other generations."""
    specs, workers = found["rest"].get(SpecField.REPLICAS), found["groups"].get(_WORKER, {})
    if specs is None or UNSCALED not in workers:
        return {}
    own = {**specs.get(WORKER, {}), "replicas": workers.get("replicas", 1)}
    return {SpecField.REPLICAS.value: {**specs, WORKER: own}}


def _item(group: JsonObject) -> dict[str, Json]:
    word = {"tfReplicaType": group["word"]} if "word" in group else {}
    scaled = {"replicas"} if UNSCALED in group else set()
    fields = {name: value for name, value in group.items() if name not in {"word", "words", UNSCALED, *scaled}}
    return _spelled({**word, **group.get(UNSCALED, {}), **fields}, group.get("words", {}))


def _map_spec(found: NormalizedSpec, generation: TFJobGeneration) -> dict[str, Json]:
    groups = {
        group.get("word") or type_of(each, ""): {name: value for name, value in group.items() if name != "word"}
        for each, group in found["groups"].items()
    }
    policy = _run_policy(found) if generation.shape is SpecLayout.NESTED else found["policy"]
    return {**found["rest"], **policy, SpecField.REPLICAS.value: groups}


def _canonical(fields: JsonObject, spellings: Mapping[str, str]) -> tuple[dict[str, Json], dict[str, str]]:
    """The fields by their canonical names, and the original spellings of those that were renamed."""
    canonical: dict[str, Json] = {}
    words: dict[str, str] = {}
    for name, value in fields.items():
        known = spellings.get(name, name)
        if known != name and known not in fields:
            words[known] = name
            canonical[known] = value
        else:
            canonical[name] = value
    return canonical, words


def _spelled(fields: JsonObject, words: Mapping[str, str]) -> dict[str, Json]:
    return {words.get(name, name): value for name, value in fields.items()}
