"""The columns of `kubectl get` for built-in kinds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tarragon.localcluster.kinds import event_conversion
from tarragon.localcluster.kinds.registry import ServedKind
from tarragon.localcluster.tables.cells import NONE, Object, at, joined, number, pairs, size, text, wide
from tarragon.localcluster.tables.pod_columns import POD_COLUMNS
from tarragon.localcluster.tables.table import AGE, NAME, WIDE, Cell, TableColumn, custom_columns, since
from tarragon.localcluster.tables.workload_columns import WORKLOAD_COLUMNS

_MAX_SHOWN = 3
"""The number of addresses or ports in a cell."""


def columns_of(served: ServedKind) -> Sequence[TableColumn]:
    """The columns of a kind; name and age for kinds without an entry."""
    if served.is_custom:
        return custom_columns(served.printer_columns)
    if served.view is not None:
        return _of_events(_BUILT_IN[served.storage_name])
    return _BUILT_IN.get(served.full_name, (NAME, AGE))


# ------------------------------------------------------------------------------------------------------- the kinds


def _service_address(service: Object, _: dt.datetime) -> str:
    spec = service.get("spec") or {}
    return str(spec.get("clusterIP") or NONE) if spec.get("type") != "ExternalName" else NONE


def _external_address(service: Object, _: dt.datetime) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or NONE)
    addresses = list(spec.get("externalIPs") or [])
    if spec.get("type") != "LoadBalancer":
        return joined(addresses)
    ingress = at(service, "status", "loadBalancer", "ingress") or []
    addresses += [str(each.get("ip") or each.get("hostname") or "") for each in ingress]
    return joined(addresses) if addresses else "<pending>"


def _service_ports(service: Object, _: dt.datetime) -> str:
    def port_text(port: Object) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}"

    return joined(port_text(port) for port in at(service, "spec", "ports") or [])


def _node_status(node: Object, _: dt.datetime) -> str:
    ready = next((c for c in at(node, "status", "conditions") or [] if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if at(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object, _: dt.datetime) -> str:
    labels = at(node, "metadata", "labels") or {}
    roles = {label.partition("/")[2] for label in labels if label.startswith("node-role.kubernetes.io/")}
    roles |= {labels[label] for label in labels if label == "kubernetes.io/role"}
    return joined(sorted(filter(None, roles)))


def _node_address(kind: str) -> Cell:
    def cell(node: Object, _: dt.datetime) -> str:
        addresses = at(node, "status", "addresses") or []
        return next((str(each.get("address")) for each in addresses if each.get("type") == kind), NONE)

    return cell


def _event_first(event: Object, now: dt.datetime) -> str:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_last(event: Object, now: dt.datetime) -> str:
    last = at(event, "series", "lastObservedTime") or event.get("lastTimestamp")
    return since(last, now) if last else _event_first(event, now)


def _event_count(event: Object, _: dt.datetime) -> int:
    return int(at(event, "series", "count") or event.get("count") or 1)


def _event_object(event: Object, _: dt.datetime) -> str:
    about = event.get("involvedObject") or {}
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object, _: dt.datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return ", ".join(filter(None, [component, source.get("host") or event.get("reportingInstance") or ""]))


def _event_message(event: Object, _: dt.datetime) -> str:
    return str(event.get("message") or "").strip()


_MODES = MappingProxyType(
    {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
)


def _access_modes(*path: str) -> Cell:
    def cell(value: Object, _: dt.datetime) -> str:
        return ",".join(_MODES.get(mode, str(mode)) for mode in at(value, *path) or [])

    return cell


def _claim_status(claim: Object, _: dt.datetime) -> str:
    if at(claim, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(at(claim, "status", "phase") or "")


def _claim_of_volume(volume: Object, _: dt.datetime) -> str:
    claim = at(volume, "spec", "claimRef") or {}
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _endpoint_addresses(endpoints: Object, _: dt.datetime) -> str:
    addresses = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in endpoints.get("subsets") or []
        for port in subset.get("ports") or []
        for address in subset.get("addresses") or []
    ]
    return joined(addresses, limit=_MAX_SHOWN)


def _slice_ports(endpoint_slice: Object, _: dt.datetime) -> str:
    ports = [str(port["port"]) for port in endpoint_slice.get("ports") or [] if port.get("port") is not None]
    return joined(ports, limit=_MAX_SHOWN) if ports else "<unset>"


def _slice_addresses(endpoint_slice: Object, _: dt.datetime) -> str:
    addresses = [address for endpoint in endpoint_slice.get("endpoints") or [] for address in endpoint["addresses"]]
    return joined(addresses, limit=_MAX_SHOWN) if addresses else "<unset>"


def _quota(which: str) -> Cell:
    def cell(quota: Object, _: dt.datetime) -> str:
        used = at(quota, "status", "used") or {}
        hard = at(quota, "status", "hard") or {}
        chosen = [name for name in sorted(hard) if name.startswith("limits.") is (which == "limits")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in chosen)

    return cell


def _bound_role(binding: Object, _: dt.datetime) -> str:
    return f"{at(binding, 'roleRef', 'kind')}/{at(binding, 'roleRef', 'name')}"


def _of_events(columns: Sequence[TableColumn]) -> Sequence[TableColumn]:
    """Those of the core group's events, for the other form."""

    def of_other_form(cell: Cell) -> Cell:
        return lambda event, now: cell(event_conversion.to_core_group(dict(event)), now)

    return tuple(
        TableColumn(one.name, of_other_form(one.cell), type=one.type, priority=one.priority) for one in columns
    )


_CREATED_AT = TableColumn("Created At", text("metadata", "creationTimestamp"), type="date")
_BINDING = (NAME, TableColumn("Role", _bound_role), AGE)

_BUILT_IN: Mapping[str, Sequence[TableColumn]] = MappingProxyType(
    {
        **WORKLOAD_COLUMNS,
        "pods": POD_COLUMNS,
        "services": (
            NAME,
            TableColumn("Type", text("spec", "type", missing="ClusterIP")),
            TableColumn("Cluster-IP", _service_address),
            TableColumn("External-IP", _external_address),
            TableColumn("Port(s)", _service_ports),
            AGE,
            wide("Selector", pairs("spec", "selector")),
        ),
        "nodes": (
            NAME,
            TableColumn("Status", _node_status),
            TableColumn("Roles", _node_roles),
            AGE,
            TableColumn("Version", text("status", "nodeInfo", "kubeletVersion", missing="")),
            wide("Internal-IP", _node_address("InternalIP")),
            wide("External-IP", _node_address("ExternalIP")),
            wide("OS-Image", text("status", "nodeInfo", "osImage", missing="<unknown>")),
            wide("Kernel-Version", text("status", "nodeInfo", "kernelVersion", missing="<unknown>")),
            wide("Container-Runtime", text("status", "nodeInfo", "containerRuntimeVersion", missing="<unknown>")),
        ),
        "events": (
            TableColumn("Last Seen", _event_last),
            TableColumn("Type", text("type", missing="")),
            TableColumn("Reason", text("reason", missing="")),
            TableColumn("Object", _event_object),
            wide("Subobject", text("involvedObject", "fieldPath", missing="")),
            wide("Source", _event_source),
            TableColumn("Message", _event_message),
            wide("First Seen", _event_first),
            TableColumn("Count", _event_count, type="integer", priority=WIDE),
            wide("Name", text("metadata", "name")),
        ),
        "configmaps": (NAME, TableColumn("Data", size("data", "binaryData")), AGE),
        "secrets": (NAME, TableColumn("Type", text("type", missing="Opaque")), TableColumn("Data", size("data")), AGE),
        "serviceaccounts": (NAME, TableColumn("Secrets", size("secrets")), AGE),
        "namespaces": (NAME, TableColumn("Status", text("status", "phase", missing="Active")), AGE),
        "persistentvolumeclaims": (
            NAME,
            TableColumn("Status", _claim_status),
            TableColumn("Volume", text("spec", "volumeName", missing="")),
            TableColumn("Capacity", text("status", "capacity", "storage", missing="")),
            TableColumn("Access Modes", _access_modes("status", "accessModes")),
            TableColumn("StorageClass", text("spec", "storageClassName", missing="")),
            TableColumn("VolumeAttributesClass", text("spec", "volumeAttributesClassName", missing="<unset>")),
            AGE,
            wide("VolumeMode", text("spec", "volumeMode", missing="<unset>")),
        ),
        "persistentvolumes": (
            NAME,
            TableColumn("Capacity", text("spec", "capacity", "storage", missing="")),
            TableColumn("Access Modes", _access_modes("spec", "accessModes")),
            TableColumn("Reclaim Policy", text("spec", "persistentVolumeReclaimPolicy", missing="")),
            TableColumn("Status", _claim_status),
            TableColumn("Claim", _claim_of_volume),
            TableColumn("StorageClass", text("spec", "storageClassName", missing="")),
            TableColumn("VolumeAttributesClass", text("spec", "volumeAttributesClassName", missing="<unset>")),
            TableColumn("Reason", text("status", "reason", missing="")),
            AGE,
            wide("VolumeMode", text("spec", "volumeMode", missing="<unset>")),
        ),
        "storageclasses.storage.k8s.io": (
            NAME,
            TableColumn("Provisioner", text("provisioner", missing="")),
            TableColumn("ReclaimPolicy", text("reclaimPolicy", missing="Delete")),
            TableColumn("VolumeBindingMode", text("volumeBindingMode", missing="Immediate")),
            TableColumn("AllowVolumeExpansion", text("allowVolumeExpansion", missing="false")),
            AGE,
        ),
        "endpoints": (NAME, TableColumn("Endpoints", _endpoint_addresses), AGE),
        "endpointslices.discovery.k8s.io": (
            NAME,
            TableColumn("AddressType", text("addressType")),
            TableColumn("Ports", _slice_ports),
            TableColumn("Endpoints", _slice_addresses),
            AGE,
        ),
        "leases.coordination.k8s.io": (NAME, TableColumn("Holder", text("spec", "holderIdentity", missing="")), AGE),
        "customresourcedefinitions.apiextensions.k8s.io": (NAME, _CREATED_AT),
        "priorityclasses.scheduling.k8s.io": (
            NAME,
            TableColumn("Value", number("value"), type="integer"),
            TableColumn("Global-Default", text("globalDefault", missing="false")),
            AGE,
            TableColumn("PreemptionPolicy", text("preemptionPolicy", missing="PreemptLowerPriority")),
        ),
        "resourcequotas": (
            NAME,
            TableColumn("Request", _quota("requests")),
            TableColumn("Limit", _quota("limits")),
            AGE,
        ),
        "roles.rbac.authorization.k8s.io": (NAME, _CREATED_AT),
        "clusterroles.rbac.authorization.k8s.io": (NAME, _CREATED_AT),
        "rolebindings.rbac.authorization.k8s.io": _BINDING,
        "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    }
)

SCALE_COLUMNS = (
    NAME,
    TableColumn("Desired", number("spec", "replicas"), type="integer"),
    TableColumn("Available", number("status", "replicas"), type="integer"),
    AGE,
)
"""The columns of autoscaling/v1 Scale, which is only a subresource here."""
