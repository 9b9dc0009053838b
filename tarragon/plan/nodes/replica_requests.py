"""The resource requests of a job's replicas, from their pod templates."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tarragon.job.model import ReplicaSpec
from tarragon.kube.core import PodSpec
from tarragon.kube.meta import JsonObject
from tarragon.kube.scheduling.host_ports import host_port
from tarragon.kube.scheduling.pod_requests import scheduling_request


def group_request(group: ReplicaSpec) -> Mapping[str, int]:
    """Return the requests of each pod of a group. On the host network its service port counts, even if not declared."""
    requests = template_request(group.template)
    return {**requests, **host_port(group.port, "TCP")} if pod_spec(group.template).host_network else requests


def template_request(template: JsonObject) -> Mapping[str, int]:
    """Return the requests of each pod of a valid template, in thousandths."""
    return scheduling_request(pod_spec(template))


def pod_spec(template: JsonObject) -> PodSpec:
    """Return the part of a template that scheduling reads."""
    return msgspec.convert(template.get("spec", {}), PodSpec)
