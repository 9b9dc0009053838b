"""Finds the objects that `kubectl get PLURAL` misses, because it asks one of several groups with that plural.

kubectl takes the first group that serves a plural: `tfjobs` are those of kubeflow.org, and those of mlkube.io are
reached by their full name only. So an answer about the first says what the others have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.localcluster.api.requests import ListOptions, RequestTarget
from tarragon.localcluster.kinds.registry import ServedKind
from tarragon.localcluster.registry.api import Api


def namesake_hint(api: Api, target: RequestTarget) -> str:
    """What to add to the message that the target was not found; empty if no other group has an object of its name."""
    for served in _other_groups(api, target.served):
        if (target.namespace, target.name) in api.committed_objects(served.storage_name).objects:
            return f"; but {served.full_name} has it: kubectl get {served.full_name} {target.name}"
    return ""


def namesake_warnings(api: Api, target: RequestTarget, options: ListOptions) -> Sequence[str]:
    """A warning for each other group of which the list would have items. Field selectors are each kind's own."""
    if options.fields or options.continue_token:
        return ()
    counts = {
        served.full_name: len(
            api.list(RequestTarget(served, target.namespace), ListOptions(labels=options.labels)).items
        )
        for served in _other_groups(api, target.served)
    }
    return [f"not listed: {count} {name}, see kubectl get {name}" for name, count in counts.items() if count]


def _other_groups(api: Api, served: ServedKind) -> Iterator[ServedKind]:
    """Yield the custom kinds of other groups with the same plural, each in one version."""
    if served.is_custom:
        others = {each.group: each for each in api.registry if each.plural == served.plural and each.is_custom}
        yield from (other for group, other in others.items() if group != served.group)
