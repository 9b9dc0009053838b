"""Fields that a write never owns: those that its subresource resets, those that no client writes, and those
that admission fills in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.compare import compare
from tarragon.localcluster.apply.managed_fields.field_set import Fields, Path, is_member
from tarragon.localcluster.apply.managed_fields.field_types import type_of
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

_SERVERS = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields")
_SERVER_METADATA = frozenset({*_SERVERS, "resourceVersion"})
_TYPE_META = frozenset({"apiVersion", "kind"})
_METADATA_STEPS = tuple(f"f:{name}" for name in sorted(_SERVER_METADATA))
UNOWNED_FIELDS: Fields = field_set.field_set(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", step) for step in _METADATA_STEPS)]
)
"""Fields that identify the object, or belong to the server."""

_STATUS_KEEPS: Mapping[str, Fields] = {
    "pods": field_set.field_set(
        [("f:spec",), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")]
    ),
    "deployments.apps": field_set.field_set([("f:spec",), ("f:metadata", "f:labels")]),
    "customresourcedefinitions.apiextensions.k8s.io": field_set.field_set([("f:spec",), ("f:metadata",)]),
}
_SPEC = field_set.field_set([("f:spec",)])
_STATUS = field_set.field_set([("f:status",)])
_ALL_BUT_STATUS = field_set.field_set([("f:spec",), ("f:metadata",)])

_POD_ACCOUNT = (("spec", "serviceAccountName"), ("spec", "serviceAccount"))
_JOB_LABELS = ("spec", "template", "metadata", "labels")
_JOB_LABEL_NAMES = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
_FILLED_IN_LATER: Mapping[str, tuple[tuple[Path, tuple[Path, ...]], ...]] = {
    "pods": (
        (("spec", "tolerations"), (("spec", "tolerations"),)),
        *((path, _POD_ACCOUNT) for path in _POD_ACCOUNT),
    ),
    "services": (*((("spec", name), (("spec", name),)) for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")),),
    "jobs.batch": (
        (("spec", "selector"), (("spec", "selector"),)),
        (_JOB_LABELS, (_JOB_LABELS,)),
        *(((*_JOB_LABELS, name), ((*_JOB_LABELS, name),)) for name in _JOB_LABEL_NAMES),
    ),
    "namespaces": ((("spec", "finalizers"), (("spec", "finalizers"),)),),
    "persistentvolumeclaims": (
        (("spec", "storageClassName"), (("spec", "storageClassName"),)),
        (("metadata", "finalizers"), (("metadata", "finalizers"),)),
    ),
}
"""Fields that the server fills in after it has recorded ownership: a path, and paths that show that a client set it."""
_CHANGED_BY_ADMISSION = frozenset({"pods", "services"})


@lru_cache(maxsize=2048)
def reset_fields(served: ServedKind, subresource: str) -> Fields:
    """The fields that a write through this subresource cannot change."""
    if subresource == "status":
        return _ALL_BUT_STATUS if served.is_custom else _STATUS_KEEPS.get(served.full_name, _SPEC)
    return _STATUS if "status" in served.subresources else {}


def ownable(thing: Mapping[str, Any], reset: Fields) -> Json:
    """A new object without fields that nobody will own: cheaper than to compare them and to drop them afterwards.

    Reset fields deeper than two steps are left in.
    """
    found: Json = {}
    for name, value in thing.items():
        node = reset.get(f"f:{name}")
        if name in _TYPE_META or (node is not None and is_member(node)):
            continue
        if node is not None:
            without = {label[2:] for label, below in node.items() if is_member(below)}
            value = {each: value[each] for each in value if each not in without}  # noqa: PLW2901 - reduced
        if name == "metadata":
            value = {each: value[each] for each in value if each not in _SERVER_METADATA}  # noqa: PLW2901 - as above
        found[name] = value
    return found


def filled_in_later(served: ServedKind, thing: Mapping[str, Any]) -> Fields:
    """The fields that the server will fill into an object as a client sent it. Nobody owns them."""
    rows = _FILLED_IN_LATER.get(served.full_name)
    if not rows or served.is_custom:
        return {}
    missing = (path for path, witnesses in rows if not any(_has_path(thing, witness) for witness in witnesses))
    return _as_fields(tuple(missing))


@lru_cache(maxsize=256)
def _as_fields(paths: tuple[Path, ...]) -> Fields:
    return field_set.field_set([tuple(f"f:{name}" for name in path) for path in paths])


def _has_path(thing: Any, path: Path) -> bool:
    for name in path:
        if type(thing) is not dict or name not in thing:
            return False
        thing = thing[name]
    return True


def copy_before_admission(served: ServedKind, thing: Json) -> Json | None:
    """Copy a new object before admission, as deeply as admission changes it; None for kinds that it does not change."""
    if served.full_name not in _CHANGED_BY_ADMISSION:
        return None
    metadata, spec = thing.get("metadata") or {}, thing.get("spec") or {}
    copied = {name: _copied(value) for name, value in spec.items()}
    return {"metadata": {**metadata, "annotations": dict(metadata.get("annotations") or {})}, "spec": copied}


def added_by_admission(served: ServedKind, sent: Json | None, thing: Json) -> Fields:
    """The fields that were added since `sent` was copied."""
    return {} if sent is None else compare(type_of(served), sent, {name: thing.get(name) or {} for name in sent}).added


def _copied(value: Any) -> Any:
    if type(value) is not list:
        return value
    return [_with_own_resources(item) if type(item) is dict else item for item in value]


def _with_own_resources(item: Json) -> Json:
    resources = item.get("resources")
    if not isinstance(resources, dict):
        return {**item}
    own = {name: dict(part) if isinstance(part, dict) else part for name, part in resources.items()}
    return {**item, "resources": own}
