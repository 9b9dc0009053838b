"""The columns of the kinds of further_kinds.py, as real servers print them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from tarragon.localcluster.kinds import event_forms
from tarragon.localcluster.tables.cells import Object, at, joined, text
from tarragon.localcluster.tables.tables import AGE, NAME, Cell, Column

_MOST_SHOWN = 3


def _slice_ports(endpoint_slice: Object, _: dt.datetime) -> str:
    ports = [str(port["port"]) for port in endpoint_slice.get("ports") or [] if port.get("port") is not None]
    return joined(ports, limit=_MOST_SHOWN) if ports else "<unset>"


def _slice_addresses(endpoint_slice: Object, _: dt.datetime) -> str:
    found = [address for endpoint in endpoint_slice.get("endpoints") or [] for address in endpoint["addresses"]]
    return joined(found, limit=_MOST_SHOWN) if found else "<unset>"


def _condition(part: str) -> Cell:
    def cell(status: Object, _: dt.datetime) -> str:
        conditions = status.get("conditions") or []
        healthy: Object = next((one for one in conditions if one.get("type") == "Healthy"), {})
        if part == "status":
            return {"True": "Healthy", "False": "Unhealthy"}.get(str(healthy.get("status")), "Unknown")
        return str(healthy.get(part) or "")

    return cell


def _is_available(service: Object, _: dt.datetime) -> str:
    conditions = at(service, "status", "conditions") or []
    found: Object = next((one for one in conditions if one.get("type") == "Available"), {})
    return "True" if found.get("status") == "True" else f"False ({found.get('reason')})"


def _is_local(service: Object, _: dt.datetime) -> str:
    behind = at(service, "spec", "service")
    return f"{behind.get('namespace')}/{behind.get('name')}" if behind else "Local"


def of_events(columns: Sequence[Column]) -> Sequence[Column]:
    """Those of the core group's events, for the other form."""

    def of_other_form(cell: Cell) -> Cell:
        return lambda event, now: cell(event_forms.kept(dict(event)), now)

    return tuple(Column(one.name, of_other_form(one.cell), type=one.type, priority=one.priority) for one in columns)


FURTHER_COLUMNS: Mapping[str, Sequence[Column]] = {
    "componentstatuses": (
        NAME,
        Column("Status", _condition("status")),
        Column("Message", _condition("message")),
        Column("Error", _condition("error")),
    ),
    "apiservices.apiregistration.k8s.io": (
        NAME,
        Column("Service", _is_local),
        Column("Available", _is_available),
        AGE,
    ),
    "endpointslices.discovery.k8s.io": (
        NAME,
        Column("AddressType", text("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        AGE,
    ),
}
