"""Zero values of built-in kinds: what an object has before a client sets anything, because Go structs always exist.

They show in managedFields: `f:spec` of a new pod has no `.`, because the struct existed before its first field. In the
table, a text names another row, and None is a null.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

_METADATA: Mapping[str, Any] = {"creationTimestamp": None}
_POD_TEMPLATE = {"metadata": "metadata", "spec": "pod spec"}
_ROWS: Mapping[str, Mapping[str, Any]] = {
    "metadata": _METADATA,
    "pod spec": {"containers": None},
    "pod template": _POD_TEMPLATE,
    "Deployment.spec": {"selector": None, "template": "pod template", "strategy": {}},
    "ReplicaSet.spec": {"selector": None, "template": "pod template"},
    "Job.spec": {"template": "pod template"},
    "Pod.spec": {"containers": None},
    "PersistentVolumeClaim.spec": {"resources": {}},
    "Service.status": {"loadBalancer": {}},
    "Node.status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": {}},
    "CustomResourceDefinition.spec": {
        "group": "",
        "names": {"plural": "", "kind": ""},
        "scope": "",
        "versions": None,
    },
    "CustomResourceDefinition.status": {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": None,
    },
}
_PARTS: Mapping[str, Mapping[str, Any]] = {
    "ConfigMap": {},
    "Secret": {},
    "ServiceAccount": {},
    "Endpoints": {},
    "EndpointSlice": {"addressType": "", "endpoints": None, "ports": None},
    "Event": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "Role": {"rules": None},
    "ClusterRole": {"rules": None},
    "RoleBinding": {"roleRef": {"apiGroup": "", "kind": "", "name": ""}},
    "ClusterRoleBinding": {"roleRef": {"apiGroup": "", "kind": "", "name": ""}},
    "PriorityClass": {"value": 0},
    "StorageClass": {"provisioner": ""},
    "Lease": {"spec": {}},
}
"""Kinds with other parts than a spec and a status."""


@lru_cache(maxsize=512)
def zero_value(served: ServedKind) -> Json:
    """The zero value of a kind, empty for a custom kind. It is shared and must not be changed."""
    if served.is_custom:
        return {}
    parts = _PARTS.get(served.kind)
    if parts is None:
        parts = {part: _ROWS.get(f"{served.kind}.{part}", {}) for part in ("spec", "status")}
    return {"metadata": dict(_METADATA), **{name: _filled(value) for name, value in parts.items()}}


def _filled(value: Any) -> Any:
    if isinstance(value, str) and value in _ROWS:
        value = _ROWS[value]
    return {name: _filled(child) for name, child in value.items()} if isinstance(value, Mapping) else value
