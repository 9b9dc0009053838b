"""The columns of the kinds of further_kinds.py, as real servers print them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from tarragon.localcluster.kinds import event_forms
from tarragon.localcluster.tables.cells import NONE, Object, at, joined, pairs, text
from tarragon.localcluster.tables.tables import AGE, NAME, Cell, Column

_MOST_SHOWN = 3


def _hosts(ingress: Object, _: dt.datetime) -> str:
    hosts = [str(rule["host"]) for rule in at(ingress, "spec", "rules") or [] if rule.get("host")]
    return joined(hosts, limit=_MOST_SHOWN) if hosts else "*"


def _ingress_address(ingress: Object, _: dt.datetime) -> str:
    given = at(ingress, "status", "loadBalancer", "ingress") or []
    return ",".join(str(one.get("ip") or one.get("hostname") or "") for one in given)


def _ingress_ports(ingress: Object, _: dt.datetime) -> str:
    return "80, 443" if at(ingress, "spec", "tls") else "80"


def _parameters(ingress_class: Object, _: dt.datetime) -> str:
    found = at(ingress_class, "spec", "parameters")
    if not found:
        return NONE
    kind = f"{found.get('kind')}.{found['apiGroup']}" if found.get("apiGroup") else str(found.get("kind"))
    return f"{kind}/{found.get('name')}"


def _slice_ports(endpoint_slice: Object, _: dt.datetime) -> str:
    ports = [str(port["port"]) for port in endpoint_slice.get("ports") or [] if port.get("port") is not None]
    return joined(ports, limit=_MOST_SHOWN) if ports else "<unset>"


def _slice_addresses(endpoint_slice: Object, _: dt.datetime) -> str:
    found = [address for endpoint in endpoint_slice.get("endpoints") or [] for address in endpoint["addresses"]]
    return joined(found, limit=_MOST_SHOWN) if found else "<unset>"


def _selector(*path: str) -> Cell:
    def cell(value: Object, now: dt.datetime) -> str:
        return str(pairs(*path, "matchLabels")(value, now))

    return cell


def _containers(field: str) -> Cell:
    def cell(template: Object, _: dt.datetime) -> str:
        return joined(str(one.get(field) or "") for one in at(template, "template", "spec", "containers") or [])

    return cell


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


def _modes(driver: Object, _: dt.datetime) -> str:
    return joined(at(driver, "spec", "volumeLifecycleModes") or [])


def _drivers(node: Object, _: dt.datetime) -> int:
    return len(at(node, "spec", "drivers") or [])


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
    "podtemplates": (
        NAME,
        Column("Containers", _containers("name")),
        Column("Images", _containers("image")),
        Column("Pod Labels", pairs("template", "metadata", "labels")),
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
    "ingressclasses.networking.k8s.io": (
        NAME,
        Column("Controller", text("spec", "controller", missing="")),
        Column("Parameters", _parameters),
        AGE,
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        Column("Class", text("spec", "ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", _ingress_address),
        Column("Ports", _ingress_ports),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (NAME, Column("Pod-Selector", _selector("spec", "podSelector")), AGE),
    "runtimeclasses.node.k8s.io": (NAME, Column("Handler", text("handler", missing="")), AGE),
    "csidrivers.storage.k8s.io": (
        NAME,
        Column("AttachRequired", text("spec", "attachRequired", missing="true")),
        Column("PodInfoOnMount", text("spec", "podInfoOnMount", missing="false")),
        Column("StorageCapacity", text("spec", "storageCapacity", missing="false")),
        Column("TokenRequests", text("spec", "tokenRequests", missing="<unset>")),
        Column("RequiresRepublish", text("spec", "requiresRepublish", missing="false")),
        Column("Modes", _modes),
        AGE,
    ),
    "csinodes.storage.k8s.io": (NAME, Column("Drivers", _drivers, type="integer"), AGE),
    "volumeattachments.storage.k8s.io": (
        NAME,
        Column("Attacher", text("spec", "attacher", missing="")),
        Column("PV", text("spec", "source", "persistentVolumeName", missing="")),
        Column("Node", text("spec", "nodeName", missing="")),
        Column("Attached", text("status", "attached", missing="false")),
        AGE,
    ),
}
