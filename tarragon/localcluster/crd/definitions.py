"""CustomResourceDefinitions: their validation, defaults and status, and the kinds that they define.

Only the conversion strategy None is supported: in every served version an object differs only in its apiVersion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.kinds.resource import CUSTOM_VERBS, PrinterColumn, ScalePaths, ServedKind
from tarragon.localcluster.schema.field_errors import (
    FieldError,
    duplicate,
    forbidden_value,
    invalid_value,
    required,
    unsupported,
)
from tarragon.localcluster.schema.schema import StructuralSchema
from tarragon.localcluster.schema.structural import metadata_faults, structural_faults

Json = dict[str, Any]

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its last custom object is gone."""

_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_PATH = re.compile(r"(\.[A-Za-z_][A-Za-z0-9_]*)+")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_NAME_FIELDS = ("plural", "singular", "kind", "listKind")


def prepare_create(definition: Json) -> None:
    spec = definition.setdefault("spec", {})
    _default(spec)
    definition["status"] = {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(spec),
    }


def prepare_update(definition: Json, old: Mapping[str, Any]) -> None:
    """Default the spec, and add a new storage version to `status.storedVersions`."""
    spec = definition.setdefault("spec", {})
    _default(spec)
    status = {**(old.get("status") or {})}
    stored = list(status.get("storedVersions") or [])
    status["storedVersions"] = stored + [name for name in _storage_versions(spec) if name not in stored]
    definition["status"] = status


def validate(definition: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = definition["spec"]
    group, naming = spec.get("group") or "", spec.get("names") or {}
    if definition["metadata"].get("name") != f"{naming.get('plural', '')}.{group}":
        name = definition["metadata"].get("name")
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield required("spec.group")
    elif problem := name_validation.subdomain(group):
        yield invalid_value("spec.group", group, problem)
    if spec.get("scope") not in {"Namespaced", "Cluster"}:
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    yield from _name_faults(naming)
    yield from _version_faults(spec)
    if (strategy := spec["conversion"].get("strategy")) != "None":
        # Conversion webhooks are not implemented, so they are rejected instead of ignored.
        yield unsupported("spec.conversion.strategy", strategy, ("None",))


def validate_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    after, before = new["spec"], old["spec"]
    for field in ("group", "scope"):
        if after.get(field) != before.get(field):
            yield invalid_value(f"spec.{field}", after.get(field), "field is immutable")
    for field in ("plural", "kind"):
        if after["names"].get(field) != before["names"].get(field):
            yield invalid_value(f"spec.names.{field}", after["names"].get(field), "field is immutable")
    present = {version.get("name") for version in after.get("versions") or ()}
    for index, stored in enumerate((new.get("status") or {}).get("storedVersions") or ()):
        if stored not in present:
            yield invalid_value(f"status.storedVersions[{index}]", stored, "must appear in spec.versions")


def accept_names(definition: Json, others: Iterable[Mapping[str, Any]], now: str) -> None:
    """Set the conditions NamesAccepted and Established in place. `others` are all other definitions."""
    wanted = definition["spec"]["names"]
    taken = _taken_names(definition, others)
    status = definition["status"]
    if clash := _clash(wanted, taken):
        reason, name = clash
        _set_condition(status, ("NamesAccepted", "False", reason, f'"{name}" is already in use'), now)
        if not is_established(definition):
            _set_condition(status, ("Established", "False", "NotAccepted", "not all names are accepted"), now)
        return
    status["acceptedNames"] = dict(wanted)
    _set_condition(status, ("NamesAccepted", "True", "NoConflicts", "no conflicts found"), now)
    if not is_established(definition):
        message = "the initial names have been accepted"
        _set_condition(status, ("Established", "True", "InitialNamesAccepted", message), now)


def mark_terminating(definition: Json, now: str) -> None:
    message = "CustomResource deletion is in progress"
    _set_condition(definition["status"], ("Terminating", "True", "InstanceDeletionInProgress", message), now)


def is_established(definition: Mapping[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


def full_name(definition: Mapping[str, Any]) -> str:
    """The name of the kind in the store: `plural.group`."""
    return f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"


def served_kinds(definition: Mapping[str, Any]) -> list[ServedKind]:
    """The kind in its served versions, the preferred version first; empty while the names are not accepted."""
    if not is_established(definition):
        return []
    spec = definition["spec"]
    storage = _storage_versions(spec)[0]
    versions = sorted((one for one in spec["versions"] if one.get("served")), key=lambda one: _priority(one["name"]))
    return [_served(spec, version, storage) for version in versions]


def _served(spec: Mapping[str, Any], version: Mapping[str, Any], storage: str) -> ServedKind:
    naming, subresources = spec["names"], version.get("subresources") or {}
    openapi = version["schema"]["openAPIV3Schema"]
    scale = subresources.get("scale")
    return ServedKind(
        group=spec["group"],
        version=version["name"],
        plural=naming["plural"],
        kind=naming["kind"],
        singular=naming["singular"],
        list_kind=naming["listKind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(naming.get("shortNames") or ()),
        categories=tuple(naming.get("categories") or ()),
        verbs=CUSTOM_VERBS,
        subresources=tuple(name for name in ("scale", "status") if subresources.get(name) is not None),
        storage_version=storage,
        printer_columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        selectable=tuple(
            field.get("jsonPath", "").removeprefix(".") for field in version.get("selectableFields") or ()
        ),
        scale=_scale_paths(scale) if scale is not None else None,
        openapi=openapi,
        schema=StructuralSchema(openapi),
        is_custom=True,
    )


def _column(column: Mapping[str, Any]) -> PrinterColumn:
    return PrinterColumn(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        format=column.get("format") or "",
        description=column.get("description") or "",
        priority=column.get("priority") or 0,
    )


def _scale_paths(scale: Mapping[str, Any]) -> ScalePaths:
    def steps(field: str) -> tuple[str, ...]:
        return tuple(filter(None, str(scale.get(field) or "").split(".")))

    return ScalePaths(
        spec_replicas=steps("specReplicasPath"),
        status_replicas=steps("statusReplicasPath"),
        label_selector=steps("labelSelectorPath"),
    )


def _default(spec: Json) -> None:
    naming = spec.setdefault("names", {})
    kind = naming.get("kind") or ""
    if not naming.get("singular"):
        naming["singular"] = kind.lower()
    if not naming.get("listKind"):
        naming["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {})
    conversion.setdefault("strategy", "None")


def _storage_versions(spec: Mapping[str, Any]) -> list[str]:
    return [version.get("name", "") for version in spec.get("versions") or () if version.get("storage")]


def _name_faults(naming: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in _NAME_FIELDS:
        name = naming.get(field) or ""
        is_cased = field in {"kind", "listKind"}
        if not name:
            yield required(f"spec.names.{field}")
        elif problem := name_validation.label_1035(name.lower() if is_cased else name):
            prefix = "may have mixed case, but should otherwise match: " if is_cased else ""
            yield invalid_value(f"spec.names.{field}", name, f"{prefix}{problem}")
    for field in ("shortNames", "categories"):
        for index, name in enumerate(naming.get(field) or ()):
            if problem := name_validation.label_1035(name):
                yield invalid_value(f"spec.names.{field}[{index}]", name, problem)


def _version_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    versions: Sequence[Mapping[str, Any]] = spec.get("versions") or []
    found = [version.get("name", "") for version in versions]
    if len(_storage_versions(spec)) != 1:
        yield invalid_value("spec.versions", found, "must have exactly one version marked as storage version")
    if versions and not any(version.get("served") for version in versions):
        yield invalid_value("spec.versions", found, "must have at least one version served")
    for index, version in enumerate(versions):
        base = f"spec.versions[{index}]"
        name = version.get("name", "")
        if problem := name_validation.label_1035(name):
            yield invalid_value(f"{base}.name", name, problem)
        if name in found[:index]:
            yield duplicate(f"{base}.name", name)
        yield from _schema_faults(f"{base}.schema.openAPIV3Schema", version)
        yield from _scale_faults(f"{base}.subresources.scale", version)
        yield from _column_faults(f"{base}.additionalPrinterColumns", version)


def _schema_faults(base: str, version: Mapping[str, Any]) -> Iterator[FieldError]:
    openapi = (version.get("schema") or {}).get("openAPIV3Schema")
    if openapi is None:
        yield required(base, "schemas are required")
        return
    yield from (*structural_faults(openapi, base), *metadata_faults(openapi, base))
    if isinstance(openapi, Mapping) and openapi.get("type") != "object":
        yield invalid_value(f"{base}.type", openapi.get("type"), "must be object at the root")


def _scale_faults(base: str, version: Mapping[str, Any]) -> Iterator[FieldError]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for field, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        path = scale.get(field) or ""
        if not path:
            yield required(f"{base}.{field}")
        elif not _PATH.fullmatch(path) or not path.startswith(f"{root}."):
            yield invalid_value(f"{base}.{field}", path, f"should be a json path under {root}")


def _column_faults(base: str, version: Mapping[str, Any]) -> Iterator[FieldError]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        for field in ("name", "type", "jsonPath"):
            if not column.get(field):
                yield required(f"{base}[{index}].{field}")
        if column.get("type") and column["type"] not in _COLUMN_TYPES:
            yield unsupported(f"{base}[{index}].type", column["type"], _COLUMN_TYPES)
        if column.get("jsonPath") and not column["jsonPath"].startswith("."):
            yield forbidden_value(f"{base}[{index}].jsonPath", "must be a simple json path starting with .")


def _taken_names(definition: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names used by other established definitions of the same group."""
    taken: set[str] = set()
    for other in others:
        is_same = other["metadata"]["name"] == definition["metadata"]["name"]
        if is_same or other["spec"]["group"] != definition["spec"]["group"] or not is_established(other):
            continue
        accepted = other["status"]["acceptedNames"]
        taken |= {accepted[word] for word in _NAME_FIELDS if accepted.get(word)}
        taken |= set(accepted.get("shortNames") or ())
    return taken


def _clash(wanted: Mapping[str, Any], taken: set[str]) -> tuple[str, str] | None:
    """The reason and the name of a conflict; if there are several, the last one, as in kube-apiserver."""
    candidates = [
        ("PluralConflict", wanted["plural"]),
        ("SingularConflict", wanted["singular"]),
        *(("ShortNamesConflict", name) for name in wanted.get("shortNames") or ()),
        ("KindConflict", wanted["kind"]),
        ("ListKindConflict", wanted["listKind"]),
    ]
    return next((one for one in reversed(candidates) if one[1] in taken), None)


def _set_condition(status: Json, fields: tuple[str, str, str, str], now: str) -> None:
    kind, value, reason, message = fields
    conditions = list(status.get("conditions") or ())
    position = next((index for index, one in enumerate(conditions) if one.get("type") == kind), None)
    since = now
    if position is not None and conditions[position]["status"] == value:
        since = conditions[position]["lastTransitionTime"]
    condition = {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
    if position is None:
        conditions.append(condition)
    else:
        conditions[position] = condition
    status["conditions"] = conditions


def _priority(name: str) -> tuple[int, int, int, int, str]:
    """A sort key for Kubernetes' order of versions: v2, v1, v1beta1, v1alpha1, then everything else by name."""
    match = _VERSION.fullmatch(name)
    if match is None:
        return (1, 0, 0, 0, name)
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (0, stability, -int(match[1]), -int(match[3] or 0), name)
