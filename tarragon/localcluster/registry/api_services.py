"""APIServices and ComponentStatuses: read-only kinds, computed from what the server knows of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tarragon.kube.selectors import field_selector, label_selector
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, ListOptions, Target
from tarragon.localcluster.kinds.registry import Registry
from tarragon.localcluster.registry.computed import Computed, FullName

_COMPONENTS = MappingProxyType({"scheduler": "ok", "controller-manager": "ok", "etcd-0": "ok"})
"""Named as in other clusters. Here they are one process, so they are healthy whenever the server answers."""


def self_told(registry: Registry, started: str) -> Mapping[FullName, Computed]:
    """The handlers of both kinds. `started` is a metav1.Time."""
    return {
        ("", "componentstatuses"): _ComponentStatuses(),
        ("apiregistration.k8s.io", "apiservices"): _ApiServices(registry, started),
    }


class _ReadOnlyList(Computed):
    """A short list of cluster-scoped objects, built anew for each request."""

    def objects(self) -> Iterable[Json]:
        raise NotImplementedError

    async def get(self, target: Target) -> Json:
        for candidate in self.objects():
            if candidate["metadata"]["name"] == target.name:
                return candidate
        raise errors.not_found(target.served, target.name)

    async def list(self, target: Target, options: ListOptions) -> Sequence[Json]:  # noqa: ARG002 - cluster-scoped
        by_labels, by_fields = label_selector(options.labels), field_selector(options.fields)
        return [
            candidate
            for candidate in self.objects()
            if by_labels(candidate["metadata"].get("labels") or {})
            and by_fields({"metadata.name": candidate["metadata"]["name"]})
        ]


class _ComponentStatuses(_ReadOnlyList):
    def objects(self) -> Iterable[Json]:
        for name, message in _COMPONENTS.items():
            yield {
                "apiVersion": "v1",
                "kind": "ComponentStatus",
                "metadata": {"name": name, "creationTimestamp": None},
                "conditions": [{"type": "Healthy", "status": "True", "message": message}],
            }


class _ApiServices(_ReadOnlyList):
    """One APIService per group-version: this server serves all of them itself."""

    def __init__(self, registry: Registry, started: str) -> None:
        self._registry = registry
        self._started = started

    def objects(self) -> Iterable[Json]:
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
