"""The descriptions of the fields of a SharePod, for `kubectl explain` and docs/reference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow import field_descriptions as shared
from tarragon.frameworks.sharepod.mirror import DEVICE, MANAGER_PORT, POD_META, POD_STATUS
from tarragon.job import conditions

STATUS_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        POD_STATUS: "The status of the pod, as Kubernetes reports it.",
        POD_META: "The metadata of the pod, without managedFields.",
        DEVICE: "The UUID of the GPU that the pod shares; empty if it has none, or none yet.",
        MANAGER_PORT: "0. In KubeShare, the port of the pod's manager.",
    }
)
"""The descriptions of the status fields other than `tarragon`."""

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.DESCRIPTIONS,
        **STATUS_DESCRIPTIONS,
        "": "A pod that may share a GPU with others, by the annotations of KubeShare 1 such as kubeshare/gpu_request.",
        "spec": "The spec of the pod, which has the name, labels and annotations of the SharePod.",
        "status": "The observed state: that of the pod, as KubeShare wrote it, and in tarragon that of the SharePod.",
    }
)

_NEVER = frozenset({conditions.SUSPENDED, conditions.RESIZED, conditions.NOT_GROWN})
CONDITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{name: meaning for name, meaning in shared.CONDITION_DESCRIPTIONS.items() if name not in _NEVER},
        conditions.RUNNING: "The pod is running.",
        conditions.FAILED: "The pod has failed. The message has the exit code.",
    }
)
