"""The roles and bindings that every Kubernetes has from its start, but those of its own components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarragon.localcluster.api.identity import MASTERS
from tarragon.localcluster.auth.roles import GROUP

Json = dict[str, Any]

BOOTSTRAPPING = ("kubernetes.io/bootstrapping", "rbac-defaults")
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"
_STREAMS = "pods/attach pods/exec pods/portforward pods/proxy"
_DEPLOYMENTS = "deployments deployments/scale"
_REPLICA_SETS = "replicasets replicasets/scale"
_STATEFUL_SETS = "statefulsets statefulsets/scale"
_ABOUT = "/healthz /livez /readyz /version /version/"
_HEALTH = "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"


def cluster_roles() -> Iterator[Json]:
    yield _role("cluster-admin", _rule("*", "*", "*"), _urls("*", "*"))
    yield _aggregated("admin", "")
    yield _aggregated("edit", "admin")
    yield _aggregated("view", "edit")
    yield _role("system:aggregate-to-admin", *_admin(), into="admin")
    yield _role("system:aggregate-to-edit", *_edit(), into="edit")
    yield _role("system:aggregate-to-view", *_view(), into="view")
    # Of the metrics server, whose part this server plays itself.
    yield _role("system:aggregated-metrics-reader", _rule("metrics.k8s.io", "nodes pods", _READ), into="view")
    yield _role("system:discovery", _urls(f"/api /api/* /apis /apis/* /openapi /openapi/* {_ABOUT}", "get"))
    yield _role("system:public-info-viewer", _urls(_ABOUT, "get"))
    yield _role("system:monitoring", _urls(_HEALTH, "get"))
    discovery = "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"
    yield _role("system:service-account-issuer-discovery", _urls(discovery, "get"))
    yield _role(
        "system:basic-user",
        _rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
    )
    yield _role(
        "system:auth-delegator",
        _rule("authentication.k8s.io", "tokenreviews", "create"),
        _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )


def cluster_role_bindings() -> Iterator[Json]:
    yield _binding("cluster-admin", MASTERS)
    yield _binding("system:discovery", AUTHENTICATED)
    yield _binding("system:basic-user", AUTHENTICATED)
    yield _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED)
    yield _binding("system:monitoring", "system:monitoring")
    yield _binding("system:service-account-issuer-discovery", "system:serviceaccounts")


def _admin() -> Sequence[Json]:
    return (
        _rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        _rule(GROUP, "rolebindings roles", _ALL),
    )


def _edit() -> Sequence[Json]:
    core = "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets"
    apps = f"daemonsets {_DEPLOYMENTS} deployments/rollback {_REPLICA_SETS} {_STATEFUL_SETS}"
    older = (
        f"daemonsets {_DEPLOYMENTS} deployments/rollback ingresses networkpolicies {_REPLICA_SETS} "
        "replicationcontrollers/scale"
    )
    return (
        _rule("", f"{_STREAMS} secrets services/proxy", _READ),
        _rule("", "serviceaccounts", "impersonate"),
        _rule("", f"pods {_STREAMS}", _WRITE),
        _rule("", "pods/eviction", "create"),
        _rule("", f"{core} serviceaccounts services services/proxy", _WRITE),
        _rule("", "serviceaccounts/token", "create"),
        _rule("apps", apps, _WRITE),
        _rule("autoscaling", "horizontalpodautoscalers", _WRITE),
        _rule("batch", "cronjobs jobs", _WRITE),
        _rule("extensions", older, _WRITE),
        _rule("policy", "poddisruptionbudgets", _WRITE),
        _rule("networking.k8s.io", "ingresses networkpolicies", _WRITE),
        _rule("coordination.k8s.io", "leases", _ALL),
    )


def _view() -> Sequence[Json]:
    core = (
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status"
    )
    about = (
        "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
        "resourcequotas resourcequotas/status"
    )
    apps = (
        f"controllerrevisions daemonsets daemonsets/status {_DEPLOYMENTS} deployments/status {_REPLICA_SETS} "
        f"replicasets/status {_STATEFUL_SETS} statefulsets/status"
    )
    older = (
        f"daemonsets daemonsets/status {_DEPLOYMENTS} deployments/status ingresses ingresses/status networkpolicies "
        f"{_REPLICA_SETS} replicasets/status replicationcontrollers/scale"
    )
    return (
        _rule("", core, _READ),
        _rule("", about, _READ),
        _rule("", "namespaces", _READ),
        _rule("discovery.k8s.io", "endpointslices", _READ),
        _rule("apps", apps, _READ),
        _rule("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
        _rule("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
        _rule("extensions", older, _READ),
        _rule("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
        _rule("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
    )


def _rule(group: str, resources: str, verbs: str) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def _urls(urls: str, verbs: str) -> Json:
    return {"nonResourceURLs": urls.split(), "verbs": verbs.split()}


def _role(name: str, *rules: Json, into: str = "") -> Json:
    return {"metadata": _metadata(name, into), "rules": list(rules)}


def _aggregated(name: str, into: str) -> Json:
    selector = {"matchLabels": {aggregation_label(name): "true"}}
    return {
        "metadata": _metadata(name, into),
        "aggregationRule": {"clusterRoleSelectors": [selector]},
        "rules": [],
    }


def aggregation_label(name: str) -> str:
    return f"{GROUP}/aggregate-to-{name}"


def _binding(role: str, *groups: str) -> Json:
    return {
        "metadata": _metadata(role, ""),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _metadata(name: str, into: str) -> Json:
    labels = dict([BOOTSTRAPPING])
    if into:
        labels[aggregation_label(into)] = "true"
    return {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}}
