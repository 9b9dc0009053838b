"""The columns of the kinds of further_kinds.py, as real servers print them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from tarragon.localcluster.kinds import event_forms
from tarragon.localcluster.tables.cells import Object, joined, text
from tarragon.localcluster.tables.tables import AGE, NAME, Cell, Column

_MOST_SHOWN = 3


def _slice_ports(endpoint_slice: Object, _: dt.datetime) -> str:
    ports = [str(port["port"]) for port in endpoint_slice.get("ports") or [] if port.get("port") is not None]
    return joined(ports, limit=_MOST_SHOWN) if ports else "<unset>"


def _slice_addresses(endpoint_slice: Object, _: dt.datetime) -> str:
    found = [address for endpoint in endpoint_slice.get("endpoints") or [] for address in endpoint["addresses"]]
    return joined(found, limit=_MOST_SHOWN) if found else "<unset>"


def of_events(columns: Sequence[Column]) -> Sequence[Column]:
    """Those of the core group's events, for the other form."""

    def of_other_form(cell: Cell) -> Cell:
        return lambda event, now: cell(event_forms.kept(dict(event)), now)

    return tuple(Column(one.name, of_other_form(one.cell), type=one.type, priority=one.priority) for one in columns)


FURTHER_COLUMNS: Mapping[str, Sequence[Column]] = {
    "endpointslices.discovery.k8s.io": (
        NAME,
        Column("AddressType", text("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        AGE,
    ),
}
