"""Discovery: the answers to /version, /api and /apis. They change as CRDs are added and removed."""

from __future__ import annotations

import datetime as dt
import platform
from collections.abc import Sequence
from typing import Any

import tarragon
from tarragon.kube.codec import format_time
from tarragon.localcluster.kinds.registry import KindRegistry, ServedKind

KUBERNETES = ("1", "37")
"""The Kubernetes version that this server implements. Clients adapt their requests to it."""

SUBRESOURCE_VERBS = ("get", "patch", "update")
_SUBRESOURCE_VERBS = {
    "binding": ("create",),
    "eviction": ("create",),
    "log": ("get",),
    **dict.fromkeys(("attach", "exec", "portforward"), ("create", "get")),
    "token": ("create",),
}
# Group, version and kind of the subresources that have a kind of their own.
_SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "attach": ("", "v1", "PodAttachOptions"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}

GroupVersions = dict[str, dict[str, list[ServedKind]]]


def version(started: dt.datetime) -> dict[str, Any]:
    """Return the answer to /version. There is no build, so the build date is the start of this server."""
    major, minor = KUBERNETES
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+tarragon-{tarragon.__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": format_time(started),
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{machine}",
    }


def api_versions(address: str) -> dict[str, Any]:
    """Return the answer to /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: KindRegistry) -> dict[str, Any]:
    """Return the answer to /apis."""
    groups = [_group(name, versions) for name, versions in _grouped(registry).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: KindRegistry, name: str) -> dict[str, Any] | None:
    """Return the answer to /apis/GROUP; None when the group is not served."""
    versions = _grouped(registry).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


def resource_list(registry: KindRegistry, name: str, version_name: str) -> dict[str, Any] | None:
    """Return the answer to /api/v1 or /apis/GROUP/VERSION; None when the version is not served."""
    kinds = _grouped(registry).get(name, {}).get(version_name)
    if not kinds:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": [resource for served in kinds for resource in _resources(served)],
    }


def aggregated(registry: KindRegistry, groups: Sequence[str], api: str) -> dict[str, Any]:
    """Return aggregated discovery of the groups. `api` is the version of apidiscovery.k8s.io: v2 or v2beta1."""
    grouped = _grouped(registry)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{api}",
        "metadata": {},
        "items": [_aggregated_group(name, grouped[name]) for name in groups if name in grouped],
    }


def group_names(registry: KindRegistry) -> list[str]:
    """Return every group except the core group, in the order in which kubectl should prefer them."""
    return [name for name in _grouped(registry) if name]


def paths(registry: KindRegistry) -> set[str]:
    """Return the paths that / lists."""
    group_versions = {f"/apis/{served.api_version}" for served in registry if served.group}
    groups = {f"/apis/{served.group}" for served in registry if served.group}
    return (
        {"/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"}
        | groups
        | group_versions
    )


def _grouped(registry: KindRegistry) -> GroupVersions:
    grouped: GroupVersions = {}
    for served in registry:
        grouped.setdefault(served.group, {}).setdefault(served.version, []).append(served)
    return grouped


def _group(name: str, versions: dict[str, list[ServedKind]]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(served: ServedKind) -> list[dict[str, Any]]:
    """Return the entry of the kind, then those of its subresources."""
    whole: dict[str, Any] = {
        "name": served.plural,
        "singularName": served.singular or served.kind.lower(),
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(served.verbs),
    }
    if served.short_names:
        whole["shortNames"] = list(served.short_names)
    if served.categories:
        whole["categories"] = list(served.categories)
    return [whole, *(_subresource(served, name) for name in served.subresources)]


def _subresource(served: ServedKind, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{served.plural}/{name}",
        "singularName": "",
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(_SUBRESOURCE_VERBS.get(name, SUBRESOURCE_VERBS)),
    }
    if name in _SUBRESOURCE_KINDS:
        entry["group"], entry["version"], entry["kind"] = _SUBRESOURCE_KINDS[name]
    return entry


def _aggregated_group(name: str, versions: dict[str, list[ServedKind]]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": None},
        "versions": [
            {
                "version": version_name,
                "freshness": "Current",
                "resources": [_aggregated_resource(served) for served in kinds],
            }
            for version_name, kinds in versions.items()
        ],
    }


def _aggregated_resource(served: ServedKind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": served.plural,
        "responseKind": _kind(served.group, served.version, served.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular or served.kind.lower(),
        "verbs": list(served.verbs),
    }
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    if served.categories:
        entry["categories"] = list(served.categories)
    if served.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _kind(
                    *_SUBRESOURCE_KINDS.get(name, (served.group, served.version, served.kind)),
                ),
                "verbs": list(_SUBRESOURCE_VERBS.get(name, SUBRESOURCE_VERBS)),
            }
            for name in served.subresources
        ]
    return entry


def _kind(group_name: str, version_name: str, kind: str) -> dict[str, str]:
    return {"group": group_name, "version": version_name, "kind": kind}
