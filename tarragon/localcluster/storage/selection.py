"""Selecting objects by labels and fields, from the small index that the store keeps beside their bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tarragon.kube.codec import decode
from tarragon.kube.selectors import everything, field_paths, field_selector, label_selector
from tarragon.localcluster.api import errors
from tarragon.localcluster.storage.history import Stored

Matcher = Callable[[Stored], bool]

_NAME = "metadata.name"
_NAMESPACE = "metadata.namespace"
_NO_LABELS: Mapping[str, str] = {}

FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "jobs.batch": ("status.successful",),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
"""What each kind can be selected by beside its name and namespace, as kube-apiserver has it."""

_STEPS = {kind: tuple(tuple(path.split(".")) for path in paths) for kind, paths in FIELDS.items()}
_BOOLEANS = frozenset({("spec", "hostNetwork"), ("spec", "unschedulable")})
"""An absent one reads as false."""


def index(kind: str, thing: Mapping[str, Any]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """An object's labels, and the texts of its kind's fields in the order of FIELDS.

    The texts are interned, as most of them are the same in thousands of objects.
    """
    labels = (thing.get("metadata") or {}).get("labels")
    kept = {name: sys.intern(str(value)) for name, value in labels.items()} if labels else _NO_LABELS
    return kept, tuple([_text(thing, steps) for steps in _STEPS.get(kind, ())])


def matcher(kind: str, labels: str, fields: str, further: Collection[str] = ()) -> Matcher:
    """Whether an object is selected. Raises BadRequest for what cannot be read or is not indexed.

    By `further` fields it can be selected, too; they are looked up in each object.
    """
    paths = FIELDS.get(kind, ())
    try:
        by_labels = label_selector(labels)
        by_fields = field_selector(fields)
        named = field_paths(fields)
    except ValueError as error:
        raise errors.bad_request(str(error)) from error
    for path in sorted(named):
        if path not in {_NAME, _NAMESPACE, *paths, *further}:
            raise errors.bad_request(f"field label not supported: {path}")
    if by_fields is everything:
        return lambda stored: by_labels(stored.labels)

    looked_up = {path: tuple(path.split(".")) for path in named if path in further}

    def selects(stored: Stored) -> bool:
        texts = dict(zip(paths, stored.fields, strict=True))
        if looked_up:
            thing = decode(stored.body, dict)
            texts |= {path: _text(thing, steps) for path, steps in looked_up.items()}
        texts[_NAMESPACE], texts[_NAME] = stored.key
        return by_labels(stored.labels) and by_fields(texts)

    return selects


def _text(thing: Any, steps: tuple[str, ...]) -> str:
    value = thing
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if steps == ("source",):  # an event's source is an object; its component is what is meant
        value = (value.get("component") if isinstance(value, dict) else None) or thing.get("reportingComponent")
    if steps == ("status", "successful"):  # of jobs, whose field has another name
        return str((thing.get("status") or {}).get("succeeded") or 0)
    if steps in _BOOLEANS:
        return "true" if value is True else "false"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else sys.intern(str(value))
