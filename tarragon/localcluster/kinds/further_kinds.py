"""Kinds that are served for other programs: networking, endpoint slices, drivers, and the server's own APIServices.

The cluster does not act on them: no packet is filtered or forwarded, no driver is called, and every runtime class runs
processes. Kinds that would only pretend are left out: webhooks that nothing calls, certificates that nothing signs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.localcluster.kinds import event_forms
from tarragon.localcluster.kinds.kind_rows import row
from tarragon.localcluster.kinds.resource import Served, View


def further_core() -> Sequence[Served]:
    return (
        row("", "bindings", "Binding", verbs=("create",), is_stored=False),
    )


def further_groups() -> Sequence[Served]:
    """In the order of discovery."""
    return (
        row("discovery.k8s.io", "endpointslices", "EndpointSlice"),
        _events(),
    )


def _events() -> Served:
    """The events of the core group, with renamed fields."""
    view = View(
        of=row("", "events", "Event"),
        shown=event_forms.shown,
        kept=event_forms.kept,
        old_fields=event_forms.old_fields,
    )
    return row("events.k8s.io", "events", "Event", short="ev", view=view)
