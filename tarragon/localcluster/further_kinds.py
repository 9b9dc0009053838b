"""Kinds that clusters have for others to read: networking, endpoint slices, drivers, what the server tells of itself.

Nothing here acts on them: no packet is filtered or forwarded, no driver is called, all runtimes are processes. Left out
is what would be a lie: webhooks that nobody would call, certificates that nobody would sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tarragon.localcluster import event_forms
from tarragon.localcluster.served import ALL_VERBS, Served, View


def further_core() -> Sequence[Served]:
    return (
        replace(_kind("", "bindings", "Binding"), verbs=("create",), is_stored=False),
        _told("", "componentstatuses", "ComponentStatus", short="cs"),
        _kind("", "podtemplates", "PodTemplate"),
    )


def further_groups() -> Sequence[Served]:
    """In the order of discovery."""
    return (
        _told("apiregistration.k8s.io", "apiservices", "APIService", categories=("api-extensions",)),
        _kind("discovery.k8s.io", "endpointslices", "EndpointSlice"),
        _events(),
        _kind("networking.k8s.io", "ingressclasses", "IngressClass", namespaced=False),
        _kind("networking.k8s.io", "ingresses", "Ingress", short="ing", sub="status"),
        _kind("networking.k8s.io", "networkpolicies", "NetworkPolicy", short="netpol"),
        _kind("node.k8s.io", "runtimeclasses", "RuntimeClass", namespaced=False),
        _kind("storage.k8s.io", "csidrivers", "CSIDriver", namespaced=False),
        _kind("storage.k8s.io", "csinodes", "CSINode", namespaced=False),
        _kind("storage.k8s.io", "volumeattachments", "VolumeAttachment", sub="status", namespaced=False),
    )


def _events() -> Served:
    """The events of the core group, under other names."""
    view = View(
        of=_kind("", "events", "Event"),
        shown=event_forms.shown,
        kept=event_forms.kept,
        old_fields=event_forms.old_fields,
    )
    return _kind("events.k8s.io", "events", "Event", short="ev", view=view)


def _told(group: str, plural: str, kind: str, *, short: str = "", categories: tuple[str, ...] = ()) -> Served:
    """Computed, and to be read only."""
    return Served(
        group=group,
        version="v1",
        storage_version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        namespaced=False,
        short_names=tuple(short.split()),
        categories=categories,
        verbs=("get", "list"),
        is_stored=False,
    )


def _kind(  # noqa: PLR0913 - the columns of the table
    group: str,
    plural: str,
    kind: str,
    *,
    short: str = "",
    sub: str = "",
    namespaced: bool = True,
    view: View | None = None,
) -> Served:
    return Served(
        group=group,
        version="v1",
        storage_version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        short_names=tuple(short.split()),
        verbs=ALL_VERBS,
        subresources=tuple(sub.split()),
        view=view,
    )
