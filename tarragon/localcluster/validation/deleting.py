"""Deleting: preconditions, grace, finalizers, and when an object is really gone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from tarragon.base.times import later
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import moment, timestamp
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.resource import Served

Json = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_FINISHED = frozenset({"Succeeded", "Failed"})
_EMPTIED_FIRST = frozenset({"namespaces", "customresourcedefinitions.apiextensions.k8s.io"})
"""Kinds that stay until what they hold is gone: a delete marks them with the time and nothing else."""


def refuse_precondition(served: Served, thing: Mapping[str, Any], options: DeleteOptions) -> None:
    """Raise Conflict when the object is not the one that was meant."""
    metadata = thing["metadata"]
    for said, asked, found, after in (
        ("UID", options.uid, metadata["uid"], "The object might have been deleted and then recreated"),
        (
            "ResourceVersion",
            options.resource_version,
            metadata["resourceVersion"],
            "The object might have been modified",
        ),
    ):
        if asked and asked != found:
            words = f"the {said} in the precondition ({asked}) does not match the {said} in record ({found}). {after}"
            raise errors.precondition(served, metadata["name"], words)


def marked(served: Served, thing: Json, options: DeleteOptions, now: dt.datetime) -> Json:
    """The object with the marks of a delete. Equal to what it was when an earlier delete has said as much already.

    Raises Forbidden for what may not be deleted.
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
        metadata["deletionTimestamp"] = timestamp(now)
        if served.full_name not in _EMPTIED_FIRST:
            metadata["deletionGracePeriodSeconds"] = 0
            _raise_generation(metadata)
    return result


def is_gone(thing: Mapping[str, Any]) -> bool:
    """Whether nothing keeps a marked object any more: no finalizer, no grace."""
    metadata = thing["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if thing.get("kind") == "Namespace" and (thing.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _set_finalizers(metadata: Json, options: DeleteOptions) -> None:
    """What the garbage collector shall do with the dependents before the object goes."""
    if options.propagation is None:
        return
    kept = [one for one in metadata.get("finalizers") or () if one not in {ORPHAN, FOREGROUND}]
    match options.propagation:
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
    """Seconds. A pod that no kubelet has, or that has ended, needs none."""
    spec = pod["spec"]
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    if options.grace_seconds is not None:
        return max(0, options.grace_seconds)
    return int(spec.get("terminationGracePeriodSeconds") or 0)


def _set_grace(metadata: Json, grace: int, now: dt.datetime) -> None:
    """Grace may be shortened by a second delete, never lengthened."""
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = timestamp(later(now, grace))
        metadata["deletionGracePeriodSeconds"] = grace
        _raise_generation(metadata)
        return
    before = int(metadata.get("deletionGracePeriodSeconds") or 0)
    if grace < before:
        begun = later(moment(metadata["deletionTimestamp"]), -before)
        metadata["deletionTimestamp"] = timestamp(max(now, later(begun, grace)))
        metadata["deletionGracePeriodSeconds"] = grace


def _raise_generation(metadata: Json) -> None:
    if metadata.get("generation"):
        metadata["generation"] += 1
