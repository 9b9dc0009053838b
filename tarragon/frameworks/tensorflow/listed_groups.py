"""Decodes the items of `spec.replicaSpecs`, and writes them back with the defaults that the operator fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.podrules import LARGEST_PORT
from tarragon.frameworks.tensorflow import default_server
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, LIST_SPELLINGS, LIST_TYPES
from tarragon.job.indexes import MOST
from tarragon.job.model import ReplicaGroup, ReplicaType, RestartPolicy
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.patch import without_nulls
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import Reader, described, nearest, suggestion

TYPE = ("tfReplicaType", "tf_replica_type")
PORT = ("tfPort", "tf_port")
MARK = "IsDefaultPS"
"""Set by the operator of late 2017 on a default parameter server. Tarragon recognises one without it."""

FIELDS = frozenset({"replicas", "template", MARK, *TYPE, *PORT})
POD_POLICIES = ("Always", "OnFailure", "Never")

_WORDS = {kind.value.upper(): kind for kind in LIST_TYPES}


def the_list(spec: Reader) -> Reader:
    return any_spelling(spec, *LIST_SPELLINGS)


def any_spelling(found: Reader, *names: str) -> Reader:
    """The first of these fields that is not missing, else the first one."""
    present = (field for name in names if not (field := found.field(name)).is_missing)
    return next(present, found.field(names[0]))


def read_groups(found: Reader, image: str, config_map: str) -> list[ReplicaGroup]:
    """Decode the groups in the order of the list. `image` and `config_map` are for the default parameter server."""
    if found.is_missing:
        found.problem("is missing", "define the replicas of the job")
    groups: dict[ReplicaType, ReplicaGroup] = {}
    for item in found.items():
        kind = _type(item)
        if kind is None:
            continue
        if kind in groups:
            any_spelling(item, *TYPE).problem(f"{groups[kind].path} is of the same type", "write each type once")
        else:
            groups[kind] = _group(kind, item, image, config_map)
    return list(groups.values())


def filled_in(items: Json, groups: Mapping[str, ReplicaGroup], image: str) -> list[Json]:
    """The list with defaults filled in. What users wrote does not change."""
    return [
        _filled(item, groups.get(_word(item)), image) if isinstance(item, Mapping) else item
        for item in (items if isinstance(items, list | tuple) else ())
    ]


def _filled(item: JsonObject, group: ReplicaGroup | None, image: str) -> JsonObject:
    written: dict[str, Json] = without_nulls(item)
    if group is None:
        return written
    if group.is_default_server:
        template = written.get("template")
        written["template"] = default_server.completed(template if isinstance(template, Mapping) else {}, image)
    is_old = TYPE[1] in written or PORT[1] in written
    port, kind = PORT[is_old], TYPE[is_old]
    return {"replicas": 1, port: DEFAULT_PORT, kind: group.type.value.upper(), **written}


def _word(item: JsonObject) -> str:
    return next((str(item[name]) for name in TYPE if item.get(name)), ReplicaType.MASTER.value.upper())


def _type(item: Reader) -> ReplicaType | None:
    """The type as in the original operator: in upper case, MASTER by default."""
    if not item.is_map():
        if item.is_missing:
            item.problem("is empty", "remove the dash, or add a value")
        return None
    written = any_spelling(item, *TYPE)
    word = written.text() or ReplicaType.MASTER.value.upper()
    if word in _WORDS:
        return _WORDS[word]
    suggested = nearest(word, _WORDS)
    remedy = f"did you mean {suggested}?" if suggested is not None else ""
    written.problem(f"must be MASTER, PS or WORKER, not {described(word)}", remedy)
    return _WORDS[suggested] if suggested is not None else None


def _group(kind: ReplicaType, item: Reader, image: str, config_map: str) -> ReplicaGroup:
    template = item.field("template")
    if kind is ReplicaType.PS:
        template = _with_container_list(template)
    valid: JsonObject = checked(template) or {}
    may_be_default = kind is ReplicaType.PS and (template.is_missing or isinstance(template.value, dict))
    is_default = may_be_default and default_server.is_wanted(valid)
    if is_default:
        valid = default_server.mounted(default_server.completed(valid, image), config_map)
    elif template.is_missing:
        template.problem("is missing", "add a pod template")
    _note_fields(item, template)
    return ReplicaGroup(
        type=kind,
        wish=_wish(kind, item),
        restart_policy=RestartPolicy.ALWAYS,
        template=valid,
        port=any_spelling(item, *PORT).whole(1, LARGEST_PORT) or DEFAULT_PORT,
        pod_policy=_pod_policy(valid, template),
        is_default_server=is_default,
        path=item.path,
    )


def _with_container_list(template: Reader) -> Reader:
    """The template with an empty list of containers, which a default server may omit: it may still say where to run."""
    spec = template.field("spec")
    if not isinstance(spec.value, dict) or not spec.field("containers").is_missing:
        return template
    return replace(template, value={**template.value, "spec": {**spec.value, "containers": []}})


def _wish(kind: ReplicaType, item: Reader) -> int:
    found = item.field("replicas")
    replicas = found.whole(0, MOST)
    if kind is ReplicaType.MASTER and replicas not in {None, 1}:
        found.problem(f"must be 1, not {replicas}", "a job has one MASTER")
        return 1
    return 1 if replicas is None else replicas


def _pod_policy(valid: JsonObject, template: Reader) -> str:
    """The restartPolicy of the pods. The default is Always, as in Kubernetes, which restarts even after success."""
    policy = valid.get("spec", {}).get("restartPolicy", "Always")
    if policy in POD_POLICIES:
        return str(policy)
    found = template.field("spec").field("restartPolicy")
    found.problem(f"must be Always, OnFailure or Never, not {described(policy)}", suggestion(policy, POD_POLICIES))
    return "Always"


def _note_fields(item: Reader, template: Reader) -> None:
    later = item.field("restartPolicy")
    if not later.is_missing:
        later.note_unknown(f"write it as {template.path}.spec.restartPolicy")
    item.only({*FIELDS, "restartPolicy"})
