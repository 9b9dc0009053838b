"""Compares the CustomResourceDefinition that a cluster has for a job kind with Tarragon's own. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import joined
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import Json, JsonObject

APPLY_COMMAND = "kubectl apply -k deploy (in tarragon's folder)"
_OURS = "tarragon"
_KUBEFLOW = ".status.conditions[-1:].type"
"""The JSON path of the column State in Kubeflow's definitions; no other operator is known to use it."""


def missing_crd(framework: Framework) -> Finding:
    if framework.is_crd_optional:
        text = f"{framework.resource.full_name} is not installed: only {framework.kind}s need it"
        return Finding("ok", framework.kind, text)
    return Finding(
        "error", framework.kind, "the kind is not installed", f"{APPLY_COMMAND} installs it (as cluster administrator)"
    )


def compare_crd(framework: Framework, found: JsonObject) -> Finding:
    """Compare `found`, the definition in the cluster, with Tarragon's own."""
    kind, ours = framework.kind, framework.crd()
    fault = _not_served(found)
    if fault:
        return Finding("error", kind, fault, f"see kubectl describe crd {ours['metadata']['name']}")
    have, want = _versions(found), _versions(ours)
    if not any(_keeps_our_status(version) for version in have.values() if version.get("storage")):
        owner = "Kubeflow" if _is_kubeflow(have.values()) else "another operator"
        return Finding(
            "error",
            kind,
            f"the CRD is from {owner}: it drops status.tarragon, in which Tarragon's operator records placements",
            f"{APPLY_COMMAND} replaces it; existing jobs are kept",
        )
    differing = list(_differences(have, want))
    if not differing:
        return Finding("ok", kind, f"the CRD matches this version of Tarragon: {', '.join(have)}")
    origin, remedy = _origin(have, want)
    return Finding("warning", kind, f"the CRD is from {origin}: {joined(differing, most=3)}", remedy)


def _origin(have: Mapping[str, JsonObject], want: Mapping[str, JsonObject]) -> tuple[str, str]:
    """Say whose the definition is, by the versions and fields that only one of the two has, and what to do."""
    theirs, ours = set(_fields(have)), set(_fields(want))
    if ours - theirs and not theirs - ours:
        return "an older version of Tarragon", f"{APPLY_COMMAND} updates it"
    if theirs - ours and not ours - theirs:
        outermost = {path for path in theirs - ours if path[:-1] not in theirs - ours}
        unknown = joined(sorted({".".join(path[1:]) or f"version {path[0]}" for path in outermost}))
        remedy = (
            f"use that version's tarragon. {APPLY_COMMAND} is a downgrade: jobs keep these fields, which this version "
            f"does not read: {unknown}"
        )
        return "a newer version of Tarragon", remedy
    return "another version of Tarragon, or was edited", f"{APPLY_COMMAND} makes it this version's"


def _fields(versions: Mapping[str, JsonObject]) -> Iterator[tuple[str, ...]]:
    """The paths of all fields that the schemas describe."""
    for name, version in versions.items():
        yield (name,)
        yield from _properties((version.get("schema") or {}).get("openAPIV3Schema") or {}, (name,))


def _properties(schema: JsonObject, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in (schema.get("properties") or {}).items():
        yield (*path, name)
        yield from _properties(field, (*path, name))
    for below in ("items", "additionalProperties"):
        if isinstance(schema.get(below), Mapping):
            yield from _properties(schema[below], (*path, below))


def _not_served(found: JsonObject) -> str:
    """Return why the kind is not served; empty if it is."""
    if found["metadata"].get("deletionTimestamp"):
        return "the kind is being deleted, and all its objects with it"
    conditions: Sequence[JsonObject] = (found.get("status") or {}).get("conditions") or ()
    for condition in conditions:
        if condition.get("type") in {"Established", "NamesAccepted"} and condition.get("status") != "True":
            return f"the kind is not served: {condition.get('message') or condition.get('reason')}"
    return ""


def _versions(definition: JsonObject) -> Mapping[str, JsonObject]:
    return {version["name"]: version for version in definition["spec"]["versions"] if version.get("served")}


def _keeps_our_status(version: JsonObject) -> bool:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    status: Json = (schema.get("properties") or {}).get("status") or {}
    keeps_all = any(each.get("x-kubernetes-preserve-unknown-fields") for each in (schema, status))
    if "status" in (schema.get("properties") or {}):
        # The rule of a field that is described overrides that of its parent.
        keeps_all = bool(status.get("x-kubernetes-preserve-unknown-fields"))
    return keeps_all or _OURS in (status.get("properties") or {})


def _is_kubeflow(versions: Iterator[JsonObject] | Sequence[JsonObject] | Json) -> bool:
    columns = [column for version in versions for column in version.get("additionalPrinterColumns") or ()]
    return any(column.get("jsonPath") == _KUBEFLOW for column in columns)


def _differences(have: Mapping[str, JsonObject], want: Mapping[str, JsonObject]) -> Iterator[str]:
    for name in want:
        if name not in have:
            yield f"{name} is not served"
        elif not _contains(have[name], want[name]):
            yield f"{name} differs"
    yield from (f"{name} is also served" for name in have if name not in want)


def _contains(have: Json, want: Json) -> bool:
    """Report whether `have` contains all of `want`. The server adds defaults, so it may contain more."""
    if isinstance(want, Mapping):
        return isinstance(have, Mapping) and all(name in have and _contains(have[name], want[name]) for name in want)
    if isinstance(want, list):
        return (
            isinstance(have, list)
            and len(have) == len(want)
            and all(_contains(mine, theirs) for mine, theirs in zip(have, want, strict=True))
        )
    return bool(have == want)
