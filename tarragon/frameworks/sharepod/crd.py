"""The CustomResourceDefinition of SharePod. The API server checks nothing in its spec, as in KubeShare."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.crd import (
    STATUS_FIELDS,
    STATUS_PATH,
    definition,
    with_columns,
    with_selectable_fields,
)
from tarragon.frameworks.kubeflow.field_descriptions import describe
from tarragon.frameworks.kubeflow.schema import Schema, open_object, tarragon_fields, tarragon_status
from tarragon.frameworks.sharepod.field_descriptions import DESCRIPTIONS
from tarragon.frameworks.sharepod.fields import SHAREPODS
from tarragon.frameworks.sharepod.mirror import DEVICE, MANAGER_PORT, POD_META, POD_STATUS
from tarragon.kube.meta import Json

SHORT_NAMES = ("shp",)

_OF_SCALE = frozenset({"replicas", "selector"})
"""Fields that only the scale subresource reads, which SharePods do not have."""
_COLUMNS = (
    {"name": "Status", "type": "string", "jsonPath": f"{STATUS_PATH}.state"},
    {"name": "GPU", "type": "string", "jsonPath": ".metadata.annotations.kubeshare/gpu_request"},
    {"name": "Restarts", "type": "integer", "jsonPath": f"{STATUS_PATH}.restarts.total"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Reason", "type": "string", "jsonPath": f"{STATUS_PATH}.reason"},
    {"name": "Message", "type": "string", "jsonPath": f"{STATUS_PATH}.message", "priority": 1},
)


def crd() -> dict[str, Json]:
    defined = definition(SHAREPODS, (SHAREPODS.version,), _schema, short_names=SHORT_NAMES)
    return with_selectable_fields(with_columns(defined, _COLUMNS), STATUS_FIELDS)


def _schema() -> Schema:
    # KubeShare writes null for a pod that does not exist yet. API servers of 1.20 take empty text for null if they were
    # built with Go 1.16: kubernetes/kubernetes#99804.
    status = {
        POD_STATUS: {**open_object({}), "nullable": True},
        POD_META: {**open_object({}), "nullable": True},
        DEVICE: {"type": "string", "nullable": True},
        MANAGER_PORT: {"type": "integer"},
        "tarragon": tarragon_status(
            {name: field for name, field in tarragon_fields().items() if name not in _OF_SCALE}
        ),
    }
    whole = open_object(
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": open_object({}),
            "status": open_object(status),
        }
    )
    describe(whole, DESCRIPTIONS)
    return whole
