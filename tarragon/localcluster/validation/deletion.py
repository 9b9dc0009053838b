"""Deletion: preconditions, grace periods, finalizers, and when an object can be removed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from tarragon.base.time_arithmetic import add_seconds
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import format_time, parse_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_FINISHED = frozenset({"Succeeded", "Failed"})
_EMPTIED_FIRST = frozenset({"namespaces", "customresourcedefinitions.apiextensions.k8s.io"})
"""Kinds that stay until their content is deleted. A delete sets only their deletionTimestamp."""


def check_preconditions(served: ServedKind, thing: Mapping[str, Any], options: DeleteOptions) -> None:
    """Raise Conflict if the object does not have the uid and resourceVersion of the precondition."""
    metadata = thing["metadata"]
    for name, required, found, hint in (
        ("UID", options.uid, metadata["uid"], "The object might have been deleted and then recreated"),
        (
            "ResourceVersion",
            options.resource_version,
            metadata["resourceVersion"],
            "The object might have been modified",
        ),
    ):
        if required and required != found:
            words = f"the {name} in the precondition ({required}) does not match the {name} in record ({found}). {hint}"
            raise errors.precondition(served, metadata["name"], words)


def mark_deleted(served: ServedKind, thing: Json, options: DeleteOptions, now: dt.datetime) -> Json:
    """The object marked as deleted; equal to `thing` if an earlier delete has marked it in the same way.

    Raises Forbidden for namespaces that must not be deleted.
    """
    metadata: Json = {**thing["metadata"]}
    if served.full_name == "namespaces":
        if metadata["name"] in _PROTECTED_NAMESPACES:
            raise errors.forbidden(served, metadata["name"], "this namespace may not be deleted")
        result = {**thing, "status": {**(thing.get("status") or {}), "phase": "Terminating"}, "metadata": metadata}
    else:
        result = {**thing, "metadata": metadata}
    _set_finalizers(metadata, options)
    if served.full_name == "pods":
        _set_grace(metadata, _pod_grace(thing, options), now)
    elif not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = format_time(now)
        if served.full_name not in _EMPTIED_FIRST:
            metadata["deletionGracePeriodSeconds"] = 0
            _increment_generation(metadata)
    return result


def can_be_removed(thing: Mapping[str, Any]) -> bool:
    """Whether an object that is marked as deleted can be removed: no finalizer or grace period keeps it."""
    metadata = thing["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if thing.get("kind") == "Namespace" and (thing.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _set_finalizers(metadata: Json, options: DeleteOptions) -> None:
    """Set the finalizer that tells the garbage collector what to do with the dependents first."""
    if options.propagation_policy is None:
        return
    kept = [one for one in metadata.get("finalizers") or () if one not in {ORPHAN, FOREGROUND}]
    match options.propagation_policy:
        case "Orphan":
            kept.append(ORPHAN)
        case "Foreground":
            kept.append(FOREGROUND)
        case "Background":
            pass
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)


def _pod_grace(pod: Mapping[str, Any], options: DeleteOptions) -> int:
    """The grace period in seconds, 0 for a pod that is not scheduled or has finished."""
    spec = pod["spec"]
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    if options.grace_period_seconds is not None:
        return max(0, options.grace_period_seconds)
    return int(spec.get("terminationGracePeriodSeconds") or 0)


def _set_grace(metadata: Json, grace: int, now: dt.datetime) -> None:
    """Set the grace period. A second delete may shorten it, but never extend it."""
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = format_time(add_seconds(now, grace))
        metadata["deletionGracePeriodSeconds"] = grace
        _increment_generation(metadata)
        return
    before = int(metadata.get("deletionGracePeriodSeconds") or 0)
    if grace < before:
        begun = add_seconds(parse_time(metadata["deletionTimestamp"]), -before)
        metadata["deletionTimestamp"] = format_time(max(now, add_seconds(begun, grace)))
        metadata["deletionGracePeriodSeconds"] = grace


def _increment_generation(metadata: Json) -> None:
    if metadata.get("generation"):
        metadata["generation"] += 1
