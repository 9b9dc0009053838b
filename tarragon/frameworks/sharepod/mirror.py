"""The status as KubeShare 1 wrote it: what the pod's own metadata and status are, and which GPU it has.

The names of the fields are those of KubeShare's Go type, which has no JSON tags.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.plugin import PodMirror
from tarragon.job.model import TrainingJob
from tarragon.job.status import JobStatus
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION

POD_STATUS = "PodStatus"
POD_META = "PodObjectMeta"
DEVICE = "BoundDeviceID"
MANAGER_PORT = "PodManagerPort"


def status_fields(_: TrainingJob, __: JobStatus) -> dict[str, Json]:
    """The fields without a pod. The port is that of KubeShare's pod manager, which Tarragon does not need."""
    return {DEVICE: "", MANAGER_PORT: 0}


def invalid_job_fields(_: JobStatus) -> dict[str, Json]:
    return {}


def _fields(pod: JsonObject) -> dict[str, Json]:
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {
        POD_STATUS: pod.get("status", {}),
        POD_META: metadata,
        DEVICE: metadata.get("annotations", {}).get(GPU_UUID_ANNOTATION, ""),
    }


def _shown_version(status: Mapping[str, Json]) -> Json:
    metadata = status.get(POD_META)
    return metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None


MIRROR = PodMirror(names=frozenset({POD_STATUS, POD_META, DEVICE}), fields=_fields, shown_version=_shown_version)
