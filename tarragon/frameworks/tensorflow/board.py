"""Decodes spec.tensorboard of mlkube.io and of the first releases of v1alpha1."""

from __future__ import annotations

from tarragon.job.model import TensorBoard
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import Reader

FIELD = "tensorboard"
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


def tensorboard(found: Reader, image: str) -> TensorBoard | None:
    """The requested TensorBoard. `image` is that of the standard parameter servers."""
    if found.is_missing or not found.is_map():
        return None
    found.only(("logDir", "serviceType", "volumeMounts", "volumes"))
    folder = found.field("logDir")
    if not folder.text():
        folder.problem("is missing", "write the directory of the summaries")
    service = found.field("serviceType").text() or SERVICE_TYPES[0]
    if service not in SERVICE_TYPES:
        remedy = f"write one of {', '.join(SERVICE_TYPES)}"
        found.field("serviceType").problem(f"unsupported value {service}", remedy)
    return TensorBoard(
        log_dir=folder.text(),
        image=image,
        volumes=checked(found.field("volumes"), "[Volume") or (),
        mounts=checked(found.field("volumeMounts"), "[VolumeMount") or (),
        service_type=service,
    )
