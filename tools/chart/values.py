"""The values of the Helm chart, as values.yaml describes them: their JSON schema, and the table for readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click
import yaml

from tarragon.cli.commands.operator import command as operator_command

Json = dict[str, Any]

_COMMENT = re.compile(r" *# ?(.*)")
_KEY = re.compile(r"( *)(\w+):")
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_SECONDS = {"type": ["number", "null"], "minimum": 0}
_AMOUNTS = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_ANY = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An entry of values.yaml. Values below one that describes no value below it are part of its default."""

    path: str
    default: Any
    description: str
    is_group: bool


def read(text: str) -> list[Value]:
    """Every value with a comment above it. Raises ValueError for one without."""
    described = dict(_described(text))
    tree = yaml.safe_load(text)
    groups = {path.rpartition(".")[0] for path in described}
    for path in _paths(tree, groups):
        if path not in described and path not in groups:
            raise ValueError(f"values.yaml: {path} has no comment that says what it is for")
    return [
        Value(path=path, default=_at(tree, path), description=description, is_group=path in groups)
        for path, description in described.items()
    ]


def _described(text: str) -> Iterator[tuple[str, str]]:
    """The comment above each key that has one."""
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if key := _KEY.match(line):
            depth = len(key[1])
            parents = [(indent, name) for indent, name in parents if indent < depth] + [(depth, key[2])]
            if above:
                yield ".".join(name for _, name in parents), " ".join(above)
        above = []


def _paths(tree: Mapping[str, Any], groups: set[str], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        yield path
        if path in groups:
            yield from _paths(value, groups, f"{path}.")


def _at(tree: Mapping[str, Any], path: str) -> Any:
    found: Any = tree
    for name in path.split("."):
        found = found[name]
    return found


def schema(text: str) -> Json:
    """The values that a user may give. Names that are not in values.yaml are errors, wherever the chart reads names."""
    values = read(text)
    tree = yaml.safe_load(text)
    descriptions = {value.path: value.description for value in values}
    leaves = {value.path for value in values if not value.is_group}
    root = _object(tree, "", leaves, descriptions)
    # Helm passes these to a chart that is a dependency of another one.
    root["properties"] |= {"global": _ANY, "enabled": {"type": "boolean"}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart tarragon", **root}


def _object(tree: Mapping[str, Any], prefix: str, leaves: set[str], descriptions: Mapping[str, str]) -> Json:
    properties: Json = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        is_leaf = path in leaves
        kind = _type(path, value) if is_leaf else _object(value, f"{path}.", leaves, descriptions)
        text = {"description": descriptions[path]} if path in descriptions else {}
        properties[name] = {**text, **kind}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _type(path: str, default: Any) -> Json:
    if path in _TYPES:
        return dict(_TYPES[path])
    match default:
        case bool():
            return {"type": "boolean"}
        case str():
            return {"type": "string"}
        case dict():
            return dict(_ANY)
        case _:
            raise ValueError(f"values.yaml: the type of {path} does not follow from {default!r}; add it to _TYPES")


def _choices(flag: str) -> Json:
    """Those of the operator's option, or an empty string for its default."""
    (option,) = [each for each in operator_command.params if flag in each.opts]
    assert isinstance(option.type, click.Choice)  # noqa: S101 - both files are ours
    return {"enum": ["", *option.type.choices]}


def _closed(**properties: Json) -> Json:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


_STRING = {"type": "string"}
_OF_EVERY_OBJECT = (
    *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "managed-by", "version")),
    "helm.sh/chart",
)
"""Labels that the chart sets. One that a value repeated would be there twice."""


def _strings_without(*names: str) -> Json:
    # Helm 4 says of `propertyNames` that another value is wrong.
    return {**_STRINGS, "properties": dict.fromkeys(names, False)}


_TYPES: Mapping[str, Json] = MappingProxyType(
    {
        "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "image.pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
        "image.pullSecrets": _list(_closed(name=_STRING)),
        "namespaces": {**_list({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}), "uniqueItems": True},
        "serviceAccount.annotations": _STRINGS,
        "replicas": {"type": "integer", "minimum": 0},
        "resources": _closed(limits=_AMOUNTS, requests=_AMOUNTS, claims=_list(_ANY)),
        "nodeSelector": _STRINGS,
        "tolerations": _list(
            _closed(
                key=_STRING,
                operator={"enum": ["Exists", "Equal", "Lt", "Gt"]},
                value=_STRING,
                effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                tolerationSeconds={"type": "integer"},
            )
        ),
        "affinity": _closed(nodeAffinity=_ANY, podAffinity=_ANY, podAntiAffinity=_ANY),
        "topologySpreadConstraints": _list(_ANY),
        "podAnnotations": _strings_without("kubectl.kubernetes.io/default-container", "tarragon.dev/accelerators"),
        "podLabels": _strings_without("app.kubernetes.io/name"),
        "commonLabels": _strings_without(
            *_OF_EVERY_OBJECT,
            "grafana_dashboard",
            *(f"rbac.authorization.k8s.io/aggregate-to-{role}" for role in ("view", "edit", "admin")),
        ),
        "scheduling.policy": _choices("--policy"),
        "scheduling.placement": _choices("--placement"),
        **{f"scheduling.{name}": _SECONDS for name in ("aged", "idle", "coolDown", "patience", "startPatience")},
        "scheduling.podGroups": {
            "type": "object",
            "additionalProperties": {"enum": ["volcano", "scheduler-plugins", "native"]},
        },
        "queues.namespaces": {
            "type": "object",
            "additionalProperties": _closed(weight={"type": "number", "exclusiveMinimum": 0}, quota=_AMOUNTS),
        },
        "accelerators": {
            "type": "object",
            "additionalProperties": _closed(volumes=_list(_ANY), envVars=_list(_ANY)),
        },
        "metrics.prometheusRule.labels": _strings_without(*_OF_EVERY_OBJECT),
        "metrics.serviceMonitor.labels": _strings_without(*_OF_EVERY_OBJECT),
        "networkPolicy.apiServer": _list({"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]+$"}),
        "networkPolicy.apiServerPorts": _list({"type": "integer", "minimum": 1, "maximum": 65535}),
        "podDisruptionBudget.minAvailable": {"type": ["integer", "string"]},
        "extraArgs": _list(_STRING),
        "extraEnv": _list(_closed(name=_STRING, value=_STRING, valueFrom=_ANY)),
    }
)
"""The types that do not follow from the defaults."""


def table(text: str) -> Iterator[str]:
    """Markdown rows, in the order of the file."""
    yield "| value | default | meaning |"
    yield "|---|---|---|"
    for value in read(text):
        default = "" if value.is_group else _default(value.default)
        yield f"| `{value.path}` | {default} | {_linked(value.description)} |"


def _default(value: Any) -> str:
    if value in ("", None):
        return ""
    if isinstance(value, (dict, list)) and len(str(value)) > 40:  # noqa: PLR2004 - too wide for a column
        return "[values.yaml](../../deploy/chart/values.yaml)"
    return f"`{yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}`"


def _linked(description: str) -> str:
    """Pages of the documentation as links from docs/reference."""
    return re.sub(r"\(docs/(\S+?)\)", r"([docs](../\1))", description)
