"""The resource requests of a job's replicas, from their pod templates."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tarragon.job.model import ReplicaSpec
from tarragon.job.places import vgpu_of
from tarragon.kube.core import PodSpec
from tarragon.kube.meta import JsonObject
from tarragon.kube.scheduling.gpu_shares import GPU_PRODUCT_LABEL, GpuShare, share_of_template
from tarragon.kube.scheduling.host_ports import host_port
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.kube.scheduling.vgpu_requests import fractional_request, request_at_vgpu


def group_request(group: ReplicaSpec) -> Mapping[str, int]:
    """Return the requests of each pod of a group, with a share of a GPU as a fraction. On the host network its service
    port counts, even if not declared.
    """
    requests, share = template_request(group.template), share_of_template(group.template)
    if pod_spec(group.template).host_network:
        requests = {**requests, **host_port(group.port, "TCP")}
    return requests if share is None else fractional_request(requests, share)


def replica_request(group: ReplicaSpec, place: str) -> Mapping[str, int]:
    """Return what a pod of a group takes from its node if it is at this place."""
    return request_at_vgpu(group_request(group), share_of_template(group.template), vgpu_of(place))


def is_right_place(share: GpuShare | None, place: str) -> bool:
    """Whether a replica with this share of a GPU, or with none, can be at the place: it is a vGPU, or is none."""
    return (share is None) == (vgpu_of(place) is None)


def template_request(template: JsonObject) -> Mapping[str, int]:
    """Return the requests of each pod of a valid template, in thousandths."""
    return scheduling_request(pod_spec(template))


def pod_spec(template: JsonObject) -> PodSpec:
    """Return the part of a template that scheduling reads. The model of a GPU that is shared is a node selector."""
    spec, share = msgspec.convert(template.get("spec", {}), PodSpec), share_of_template(template)
    if share is None or not share.model:
        return spec
    return msgspec.structs.replace(spec, node_selector={**spec.node_selector, GPU_PRODUCT_LABEL: share.model})
