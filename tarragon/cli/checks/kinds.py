"""Whose CustomResourceDefinition a cluster has for one of our kinds, and whether Tarragon can keep its jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import listed
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import Json, JsonObject

APPLY = "kubectl apply -k deploy (in tarragon's folder)"
_OURS = "tarragon"
_KUBEFLOW = ".status.conditions[-1:].type"
"""Where Kubeflow's definitions read the column State from; no other operator's is known to do so."""


def missing(framework: Framework) -> Finding:
    if framework.is_optional:
        text = f"{framework.resource.full_name} is not installed here: only jobs of {_ages(framework)} need it"
        return Finding("ok", framework.kind, text)
    return Finding(
        "error", framework.kind, "the kind is not installed here", f"{APPLY} installs it; that takes an administrator"
    )


def compared(framework: Framework, found: JsonObject) -> Finding:
    """`found` is the definition as the cluster has it; our own is the measure."""
    kind, ours = framework.kind, framework.crd()
    fault = _not_served(found)
    if fault:
        return Finding("error", kind, fault, f"kubectl describe crd {ours['metadata']['name']} says more")
    have, want = _versions(found), _versions(ours)
    if not any(_keeps_our_status(version) for version in have.values() if version.get("storage")):
        whose = "Kubeflow's" if _is_kubeflow(have.values()) else "somebody else's"
        return Finding(
            "error",
            kind,
            f"the kind is {whose}: it drops status.tarragon, in which Tarragon's operator keeps who runs where",
            f"{APPLY} puts Tarragon's in its place; jobs that are there stay",
        )
    differing = list(_differences(have, want))
    if not differing:
        return Finding("ok", kind, f"Tarragon's, as this version has it: {', '.join(have)}")
    text = f"of another version of Tarragon, or changed by hand: {listed(differing, most=3)}"
    return Finding("warning", kind, text, f"{APPLY} makes it this version's")


def _ages(framework: Framework) -> str:
    """`mlkube.io/v1beta1`."""
    return listed([dialect.api_version for dialect in framework.dialects])


def _not_served(found: JsonObject) -> str:
    """Why nobody can make one; empty where everybody can."""
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
        # What is below a field that is described follows the field's own rule.
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
    yield from (f"{name} is served, too" for name in have if name not in want)


def _contains(have: Json, want: Json) -> bool:
    """The server fills in defaults: what we did not write may be there."""
    if isinstance(want, Mapping):
        return isinstance(have, Mapping) and all(name in have and _contains(have[name], want[name]) for name in want)
    if isinstance(want, list):
        return (
            isinstance(have, list)
            and len(have) == len(want)
            and all(_contains(mine, theirs) for mine, theirs in zip(have, want, strict=True))
        )
    return bool(have == want)
