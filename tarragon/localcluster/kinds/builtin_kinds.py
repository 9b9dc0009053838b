"""The kinds that every cluster has, as rows of one table.

Nothing acts on `storageclasses` and `persistentvolumes`: operators and their users read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tarragon.localcluster.kinds import event_conversion
from tarragon.localcluster.kinds.resource import ALL_VERBS, ConvertedView, ScalePaths, ServedKind

_POD_SUBRESOURCES = "attach binding eviction exec log portforward status"
_NOT_IN_BULK = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def built_in_kinds() -> Sequence[ServedKind]:
    """All built-in kinds, in the order of discovery."""
    return (
        *_core(),
        *_of_group("apiextensions.k8s.io", _definitions()),
        *_of_group("apps", *_apps()),
        *_of_group("authentication.k8s.io", *_authentication()),
        *_of_group("authorization.k8s.io", *_authorization()),
        *_of_group("batch", _kind("jobs", "Job", sub="status", categories=("all",))),
        *_of_group("coordination.k8s.io", _kind("leases", "Lease")),
        *_metrics(),
        *_of_group("rbac.authorization.k8s.io", *_rbac()),
        *_of_group("scheduling.k8s.io", _kind("priorityclasses", "PriorityClass", short="pc", namespaced=False)),
        *_of_group("storage.k8s.io", _kind("storageclasses", "StorageClass", short="sc", namespaced=False)),
        *_of_group("discovery.k8s.io", _kind("endpointslices", "EndpointSlice")),
        *_of_group("events.k8s.io", _events()),
    )


def _core() -> tuple[ServedKind, ...]:
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
        _kind("bindings", "Binding", verbs=("create",), is_stored=False),
    )


def _apps() -> tuple[ServedKind, ...]:
    """The selector is an object here; a custom kind has the text of one."""
    scale = ScalePaths(
        spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), label_selector=("spec", "selector")
    )
    return (
        _kind("deployments", "Deployment", short="deploy", sub="scale status", categories=("all",), scale=scale),
        _kind("replicasets", "ReplicaSet", short="rs", sub="scale status", categories=("all",), scale=scale),
    )


def _events() -> ServedKind:
    """The events of the core group, under other names."""
    view = ConvertedView(
        of=_kind("events", "Event"),
        from_stored=event_conversion.to_events_group,
        to_stored=event_conversion.to_core_group,
        to_stored_field_selector=event_conversion.to_core_field_selector,
    )
    return _kind("events", "Event", short="ev", view=view)


def _metrics() -> tuple[ServedKind, ...]:
    """The kinds that metrics-server serves."""
    kinds = (
        _kind("nodes", "NodeMetrics", namespaced=False, verbs=("get", "list"), is_stored=False),
        _kind("pods", "PodMetrics", verbs=("get", "list"), is_stored=False),
    )
    return tuple(replace(kind, group="metrics.k8s.io", version="v1beta1", storage_version="v1beta1") for kind in kinds)


def _definitions() -> ServedKind:
    return _kind(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        short="crd crds",
        sub="status",
        namespaced=False,
        categories=("api-extensions",),
    )


def _authentication() -> tuple[ServedKind, ...]:
    return (_review("selfsubjectreviews", "SelfSubjectReview"), _review("tokenreviews", "TokenReview"))


def _authorization() -> tuple[ServedKind, ...]:
    return (
        _kind("localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",), is_stored=False),
        _review("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        _review("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        _review("subjectaccessreviews", "SubjectAccessReview"),
    )


def _review(plural: str, kind: str) -> ServedKind:
    return _kind(plural, kind, namespaced=False, verbs=("create",), is_stored=False)


def _rbac() -> tuple[ServedKind, ...]:
    return (
        _kind("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        _kind("clusterroles", "ClusterRole", namespaced=False),
        _kind("rolebindings", "RoleBinding"),
        _kind("roles", "Role"),
    )


def _of_group(group: str, *kinds: ServedKind) -> tuple[ServedKind, ...]:
    return tuple(replace(kind, group=group) for kind in kinds)


def _kind(  # noqa: PLR0913 - the columns of the table
    plural: str,
    kind: str,
    *,
    short: str = "",
    sub: str = "",
    singular: str = "",
    namespaced: bool = True,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    scale: ScalePaths | None = None,
    view: ConvertedView | None = None,
    is_stored: bool = True,
) -> ServedKind:
    """A kind of the core group in version v1. `short` and `sub` are names with spaces between them."""
    return ServedKind(
        group="",
        version="v1",
        storage_version="v1",
        plural=plural,
        kind=kind,
        singular=singular or kind.lower(),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        short_names=tuple(short.split()),
        categories=categories,
        verbs=verbs,
        subresources=tuple(sub.split()),
        scale=scale,
        view=view,
        is_stored=is_stored,
    )
