"""The kinds that every cluster has, as rows of one table.

Nothing acts on `storageclasses` and `persistentvolumes`: operators and their users read them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from tarragon.localcluster.kinds.further_kinds import further_core, further_groups
from tarragon.localcluster.kinds.kind_rows import row
from tarragon.localcluster.kinds.resource import ALL_VERBS, Served
from tarragon.localcluster.kinds.workload_kinds import core_workloads, group_workloads

_POD_SUBRESOURCES = "attach binding eviction exec log portforward status"
_NOT_IN_BULK = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def built_in_kinds() -> Sequence[Served]:
    """All built-in kinds, in the order of discovery."""
    return (
        *_core(),
        *core_workloads(),
        *further_core(),
        *_of_group("apiextensions.k8s.io", _definitions()),
        *group_workloads(),
        *_of_group("authentication.k8s.io", _of_authentication()),
        *_of_group("authorization.k8s.io", _of_authorization()),
        *_of_group("coordination.k8s.io", (_kind("leases", "Lease"),)),
        *_metrics(),
        *_of_group("rbac.authorization.k8s.io", _rbac()),
        *_of_group("scheduling.k8s.io", (_kind("priorityclasses", "PriorityClass", short="pc", namespaced=False),)),
        *_of_group("storage.k8s.io", (_kind("storageclasses", "StorageClass", short="sc", namespaced=False),)),
        *further_groups(),
    )


def _core() -> tuple[Served, ...]:
    return (
        _kind("configmaps", "ConfigMap", short="cm"),
        _kind("endpoints", "Endpoints", short="ep", singular="endpoints"),
        _kind("events", "Event", short="ev"),
        _kind("namespaces", "Namespace", short="ns", sub="status finalize", namespaced=False, verbs=_NOT_IN_BULK),
        _kind("nodes", "Node", short="no", sub="status", namespaced=False),
        _kind("persistentvolumeclaims", "PersistentVolumeClaim", short="pvc", sub="status"),
        _kind("persistentvolumes", "PersistentVolume", short="pv", sub="status", namespaced=False),
        _kind("pods", "Pod", short="po", sub=_POD_SUBRESOURCES, categories=("all",)),
        _kind("resourcequotas", "ResourceQuota", short="quota", sub="status"),
        _kind("secrets", "Secret"),
        _kind("serviceaccounts", "ServiceAccount", short="sa", sub="token"),
        _kind("services", "Service", short="svc", sub="status", categories=("all",)),
    )


def _metrics() -> tuple[Served, ...]:
    """The kinds of metrics-server."""
    kinds = (
        _kind("nodes", "NodeMetrics", namespaced=False, verbs=("get", "list")),
        _kind("pods", "PodMetrics", verbs=("get", "list")),
    )
    return tuple(
        replace(kind, group="metrics.k8s.io", version="v1beta1", storage_version="v1beta1", is_stored=False)
        for kind in kinds
    )


def _definitions() -> tuple[Served, ...]:
    return (
        _kind(
            "customresourcedefinitions",
            "CustomResourceDefinition",
            short="crd crds",
            sub="status",
            namespaced=False,
            categories=("api-extensions",),
        ),
    )


def _of_authentication() -> tuple[Served, ...]:
    return (_review("selfsubjectreviews", "SelfSubjectReview"), _review("tokenreviews", "TokenReview"))


def _of_authorization() -> tuple[Served, ...]:
    local = _kind("localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",))
    return (
        replace(local, is_stored=False),
        _review("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        _review("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        _review("subjectaccessreviews", "SubjectAccessReview"),
    )


def _review(plural: str, kind: str) -> Served:
    return replace(_kind(plural, kind, namespaced=False, verbs=("create",)), is_stored=False)


def _rbac() -> tuple[Served, ...]:
    return (
        _kind("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        _kind("clusterroles", "ClusterRole", namespaced=False),
        _kind("rolebindings", "RoleBinding"),
        _kind("roles", "Role"),
    )


_kind = functools.partial(row, "")
"""A row without a group: `_of_group` sets it, or the kind stays in the core group."""


def _of_group(group: str, kinds: Sequence[Served]) -> tuple[Served, ...]:
    return tuple(kind.in_group(group) for kind in kinds)
