"""Which GPUs a new pod gets: it differs from node to node who decides that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tarragon.kube.codec import decode, encode
from tarragon.kube.core import PODS, PodSpec
from tarragon.kube.meta import Json
from tarragon.operator.informers.assumed_pods import JobId
from tarragon.operator.informers.gpu_anchors import GpuAnchors
from tarragon.operator.informers.hami_gpu_choices import HamiGpuChoices
from tarragon.plan.objects.placement import assigned_node
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait, SharedGpu


class PodGpus:
    """The GPUs that anchors hold, and those that HAMi may give to pods."""

    def __init__(self, anchors: GpuAnchors, hami: HamiGpuChoices) -> None:
        self.anchors = anchors
        self._hami = hami

    def on_job_change(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job that may get other answers."""
        self.anchors.on_job_change(handler)
        self._hami.on_job_change(handler)

    def find(self, job: JobId, demand: GpuDemand) -> SharedGpu | ChosenGpus | GpuWait | None:
        """The GPUs of a new pod of the job, or why there are none yet; None if its kubelet finds them itself."""
        if self._hami.shares_gpus_of(demand.node):
            return self._hami.gpus_for(job, demand)
        return None if demand.whole else self.anchors.shared_gpu(demand.place)

    def are_current(self, job: JobId, body: Mapping[str, Json]) -> bool:
        """Whether the object that is about to be created for the job has no GPUs, or those that it would get now."""
        is_pod = body.get("kind") == PODS.kind
        node = assigned_node(decode(encode(body["spec"]), PodSpec)) if is_pod else ""
        if node and self._hami.shares_gpus_of(node):
            return self._hami.is_current(job, body)
        return self.anchors.is_current(body)
