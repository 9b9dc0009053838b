"""spec.tensorboard, as mlkube.io had it and the first releases of v1alpha1 still did."""

from __future__ import annotations

from tarragon.job.model import TensorBoard
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import Reader

FIELD = "tensorboard"
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


def tensorboard(found: Reader, image: str) -> TensorBoard | None:
    """It runs in the image that the standard parameter servers have, too."""
    if found.is_missing or not found.is_map():
        return None
    found.only(("logDir", "serviceType", "volumeMounts", "volumes"))
    folder = found.field("logDir")
    if not folder.text():
        folder.problem("is missing", "write the folder that the summaries are in")
    service = found.field("serviceType").text() or SERVICE_TYPES[0]
    if service not in SERVICE_TYPES:
        remedy = f"write one of {', '.join(SERVICE_TYPES)}"
        found.field("serviceType").problem(f"must be a type of Service, not {service}", remedy)
    return TensorBoard(
        log_dir=folder.text(),
        image=image,
        volumes=checked(found.field("volumes"), "[Volume") or (),
        mounts=checked(found.field("volumeMounts"), "[VolumeMount") or (),
        service_type=service,
    )
