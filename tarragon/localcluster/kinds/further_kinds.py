"""Kinds that clusters have for others to read: networking, endpoint slices, drivers, what the server tells of itself.

Nothing here acts on them: no packet is filtered or forwarded, no driver is called, all runtimes are processes. Left out
is what would be a lie: webhooks that nobody would call, certificates that nobody would sign.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.localcluster.kinds import event_forms
from tarragon.localcluster.kinds.kind_rows import row
from tarragon.localcluster.kinds.resource import Served, View


def further_core() -> Sequence[Served]:
    return (
        row("", "bindings", "Binding", verbs=("create",), is_stored=False),
        _told("", "componentstatuses", "ComponentStatus", short="cs"),
        row("", "podtemplates", "PodTemplate"),
    )


def further_groups() -> Sequence[Served]:
    """In the order of discovery."""
    return (
        _told("apiregistration.k8s.io", "apiservices", "APIService", categories=("api-extensions",)),
        row("discovery.k8s.io", "endpointslices", "EndpointSlice"),
        _events(),
        row("networking.k8s.io", "ingressclasses", "IngressClass", namespaced=False),
        row("networking.k8s.io", "ingresses", "Ingress", short="ing", sub="status"),
        row("networking.k8s.io", "networkpolicies", "NetworkPolicy", short="netpol"),
        row("node.k8s.io", "runtimeclasses", "RuntimeClass", namespaced=False),
        row("storage.k8s.io", "csidrivers", "CSIDriver", namespaced=False),
        row("storage.k8s.io", "csinodes", "CSINode", namespaced=False),
        row("storage.k8s.io", "volumeattachments", "VolumeAttachment", sub="status", namespaced=False),
    )


def _events() -> Served:
    """The events of the core group, under other names."""
    view = View(
        of=row("", "events", "Event"),
        shown=event_forms.shown,
        kept=event_forms.kept,
        old_fields=event_forms.old_fields,
    )
    return row("events.k8s.io", "events", "Event", short="ev", view=view)


def _told(group: str, plural: str, kind: str, *, short: str = "", categories: tuple[str, ...] = ()) -> Served:
    """Computed, and to be read only."""
    verbs = ("get", "list")
    return row(group, plural, kind, short=short, namespaced=False, categories=categories, verbs=verbs, is_stored=False)
