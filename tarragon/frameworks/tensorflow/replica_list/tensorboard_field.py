"""Decodes spec.tensorboard of mlkube.io and of the first releases of v1alpha1."""

from __future__ import annotations

from tarragon.job.model import TensorBoardSpec
from tarragon.kube.field_reader import FieldReader
from tarragon.kube.pod_validation import validated

FIELD = "tensorboard"
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


def tensorboard(found: FieldReader, image: str) -> TensorBoardSpec | None:
    """The requested TensorBoard. `image` is that of the standard parameter servers."""
    if found.is_missing or not found.is_map():
        return None
    found.note_unknown_fields(("logDir", "serviceType", "volumeMounts", "volumes"))
    folder = found.field("logDir")
    if not folder.string():
        folder.add_problem("is missing", "write the directory of the summaries")
    service = found.field("serviceType").string() or SERVICE_TYPES[0]
    if service not in SERVICE_TYPES:
        remedy = f"write one of {', '.join(SERVICE_TYPES)}"
        found.field("serviceType").add_problem(f"unsupported value {service}", remedy)
    return TensorBoardSpec(
        log_dir=folder.string(),
        image=image,
        volumes=validated(found.field("volumes"), "[Volume") or (),
        volume_mounts=validated(found.field("volumeMounts"), "[VolumeMount") or (),
        service_type=service,
    )
