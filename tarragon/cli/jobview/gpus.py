"""How many accelerators a job, a pod or a node has: whatever a device plugin calls them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.cli.jobview.jobs import Known
from tarragon.job.model import ReplicaType
from tarragon.plan.nodes.capacity import template_request

_WORDS = ("gpu", "tpu", "npu", "mig-", "accelerator")


def accelerators(amounts: Mapping[str, int]) -> int:
    """Of thousandths, whole ones. A plain resource of Kubernetes has no slash in its name."""
    return sum(amount for name, amount in amounts.items() if is_accelerator(name)) // 1000


def is_accelerator(resource: str) -> bool:
    """`nvidia.com/gpu`, `google.com/tpu`, `nvidia.com/mig-1g.5gb`."""
    _, slash, name = resource.rpartition("/")
    return bool(slash) and any(word in name for word in _WORDS)


def of_job(job: Known, size: Mapping[ReplicaType, int]) -> int:
    """Those that the job has when all replicas of that size run."""
    groups = job.job.groups if job.job is not None else ()
    return sum(size.get(group.type, 0) * accelerators(template_request(group.template)) for group in groups)
