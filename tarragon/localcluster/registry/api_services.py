"""What the server tells of itself: the API services, which are all its own, and the parts of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tarragon.kube.selectors import field_selector, label_selector
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, ListOptions, Target
from tarragon.localcluster.kinds.registry import Registry
from tarragon.localcluster.registry.computed import Computed, FullName

_PARTS = MappingProxyType({"scheduler": "ok", "controller-manager": "ok", "etcd-0": "ok"})
"""By the names that they have elsewhere. They are one process here: whoever gets an answer knows that they live."""


def self_told(registry: Registry, started: str) -> Mapping[FullName, Computed]:
    """What answers for these kinds. `started` is a metav1.Time."""
    return {
        ("", "componentstatuses"): _Parts(),
        ("apiregistration.k8s.io", "apiservices"): _ApiServices(registry, started),
    }


class _Told(Computed):
    """A short list that is made anew whenever somebody asks."""

    def all(self) -> Iterable[Json]:
        raise NotImplementedError

    async def get(self, target: Target) -> Json:
        for one in self.all():
            if one["metadata"]["name"] == target.name:
                return one
        raise errors.not_found(target.served, target.name)

    async def list(self, target: Target, options: ListOptions) -> Sequence[Json]:  # noqa: ARG002 - there is one scope
        by_labels, by_fields = label_selector(options.labels), field_selector(options.fields)
        return [
            one
            for one in self.all()
            if by_labels(one["metadata"].get("labels") or {}) and by_fields({"metadata.name": one["metadata"]["name"]})
        ]


class _Parts(_Told):
    def all(self) -> Iterable[Json]:
        for name, message in _PARTS.items():
            yield {
                "apiVersion": "v1",
                "kind": "ComponentStatus",
                "metadata": {"name": name, "creationTimestamp": None},
                "conditions": [{"type": "Healthy", "status": "True", "message": message}],
            }


class _ApiServices(_Told):
    """One for each group-version: none is served by another server."""

    def __init__(self, registry: Registry, started: str) -> None:
        self._registry = registry
        self._started = started

    def all(self) -> Iterable[Json]:
        for group, version in dict.fromkeys((kind.group, kind.version) for kind in self._registry):
            yield {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {
                    "name": f"{version}.{group}",
                    "creationTimestamp": self._started,
                    "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
                },
                "spec": {
                    **({"group": group} if group else {}),
                    "version": version,
                    "groupPriorityMinimum": 17000 if not group or group.endswith(".k8s.io") else 1000,
                    "versionPriority": 100,
                },
                "status": {
                    "conditions": [
                        {
                            "type": "Available",
                            "status": "True",
                            "reason": "Local",
                            "message": "Local APIServices are always available",
                        }
                    ]
                },
            }
