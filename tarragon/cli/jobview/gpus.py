"""Counts the accelerators of a job, a pod or a node, whatever resource name their device plugin uses. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.job.model import ReplicaType
from tarragon.plan.nodes.replica_requests import template_request

_WORDS = ("gpu", "tpu", "npu", "mig-", "accelerator")


def accelerator_count(amounts: Mapping[str, int]) -> int:
    """Returns the number of whole accelerators; `amounts` are in thousandths."""
    return sum(amount for name, amount in amounts.items() if is_accelerator(name)) // 1000


def is_accelerator(resource: str) -> bool:
    """Whether the resource is an accelerator: `nvidia.com/gpu`, `google.com/tpu`, `nvidia.com/mig-1g.5gb`.

    Kubernetes' own resources (`cpu`) have no slash in their names.
    """
    _, slash, name = resource.rpartition("/")
    return bool(slash) and any(word in name for word in _WORDS)


def accelerators_of_job(job: ClusterJob, size: Mapping[ReplicaType, int]) -> int:
    """Returns the accelerators of a job whose replicas number `size`, when all of them run."""
    groups = job.job.replica_specs if job.job is not None else ()
    return sum(size.get(group.type, 0) * accelerator_count(template_request(group.template)) for group in groups)
