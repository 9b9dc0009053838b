"""Label and field selectors of stored objects, matched against a small index instead of the encoded objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tarragon.kube.codec import decode
from tarragon.kube.selectors import field_paths, matches_everything, parse_field_selector, parse_label_selector
from tarragon.localcluster.api import errors
from tarragon.localcluster.storage.watch_cache import StoredObject

Matcher = Callable[[StoredObject], bool]

_NAME = "metadata.name"
_NAMESPACE = "metadata.namespace"
_NO_LABELS: Mapping[str, str] = {}

SELECTABLE_FIELDS: Mapping[str, tuple[str, ...]] = {
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
"""The field selectors of each kind besides name and namespace, as in kube-apiserver."""

_STEPS = {kind: tuple(tuple(path.split(".")) for path in paths) for kind, paths in SELECTABLE_FIELDS.items()}
_SOURCE, _SUCCESSFUL = ("source",), ("status", "successful")
_BOOLEANS = frozenset({("spec", "hostNetwork"), ("spec", "unschedulable")})
"""Fields that read as false when they are absent."""


def index_entry(kind: str, thing: Mapping[str, Any]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """An object's labels, and the values of its kind's selectable fields as text, in the order of FIELDS.

    Values are interned, because most of them are equal in thousands of objects.
    """
    labels = (thing.get("metadata") or {}).get("labels")
    indexed = {name: sys.intern(str(value)) for name, value in labels.items()} if labels else _NO_LABELS
    return indexed, tuple([_text(thing, steps) for steps in _STEPS.get(kind, ())])


def matcher(kind: str, labels: str, fields: str, further: Collection[str] = ()) -> Matcher:
    """A predicate on stored objects for a pair of selectors.

    `further` are more fields that may be selected; they are not indexed but read from each object. Raises BadRequest
    for a selector that cannot be parsed and for fields that are not supported.
    """
    paths = SELECTABLE_FIELDS.get(kind, ())
    try:
        by_labels = parse_label_selector(labels)
        by_fields = parse_field_selector(fields)
        used_paths = field_paths(fields)
    except ValueError as error:
        raise errors.bad_request(str(error)) from error
    for path in sorted(used_paths):
        if path not in {_NAME, _NAMESPACE, *paths, *further}:
            raise errors.bad_request(f"field label not supported: {path}")
    if by_fields is matches_everything:
        return lambda stored: by_labels(stored.labels)

    unindexed = {path: tuple(path.split(".")) for path in used_paths if path in further}

    def selects(stored: StoredObject) -> bool:
        texts = dict(zip(paths, stored.fields, strict=True))
        if unindexed:
            thing = decode(stored.body, dict)
            texts |= {path: _text(thing, steps) for path, steps in unindexed.items()}
        texts[_NAMESPACE], texts[_NAME] = stored.key
        return by_labels(stored.labels) and by_fields(texts)

    return selects


def _text(thing: Mapping[str, Any], steps: tuple[str, ...]) -> str:
    value: Any = thing
    for step in steps:
        value = value.get(step) if type(value) is dict else None
    if type(value) is str and steps != _SOURCE:
        return sys.intern(value)
    if steps == _SOURCE:  # the source of an event is an object; the selector means its component
        value = (value.get("component") if isinstance(value, dict) else None) or thing.get("reportingComponent")
    elif steps == _SUCCESSFUL:  # the field of a Job is called `succeeded`
        return str((thing.get("status") or {}).get("succeeded") or 0)
    elif steps in _BOOLEANS:
        return "true" if value is True else "false"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else sys.intern(str(value))
