"""Says whether something keeps the programs on a shared GPU to their limits: where nothing does, users should know."""

from __future__ import annotations

from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.conditions import ConditionUpdate, remove_condition, set_condition
from tarragon.job.places import node_of, vgpu_of
from tarragon.job.status import JobStatus
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing, mps_pipe_directory
from tarragon.plan.view.job_view import JobView

ENFORCED, ENFORCED_BY_HAMI, NOT_ENFORCED = "MPS", "HAMi", "NotEnforced"

_SHARING = frozenset({GpuSharing.ANCHOR, GpuSharing.HAMI})


def set_gpu_isolation(view: JobView, status: JobStatus) -> JobStatus:
    """Set the condition GpuIsolation of a job that shares GPUs held by anchors, or by HAMi.

    Of nodes whose kubelet shares GPUs it is not known here whether an MPS daemon runs there.
    """
    nodes = _nodes_with_shares(view)
    if not nodes:
        return replace(status, conditions=remove_condition(status.conditions, conditions.GPU_ISOLATION))
    others = [node for node in nodes if gpu_sharing(node) is not GpuSharing.HAMI]
    without = sorted(node.metadata.name for node in others if not mps_pipe_directory(node))
    if without:
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        message = (
            f"the limits of compute and memory are not enforced on node {without[0]}{more}: no MPS daemon runs there, "
            "so programs take turns, and each has to limit its memory itself"
        )
        said = ConditionUpdate(conditions.GPU_ISOLATION, False, NOT_ENFORCED, message)
    elif not others:
        message = (
            "HAMi limits compute and memory by a library in each container, which keeps programs to their requests as "
            "its settings say"
        )
        said = ConditionUpdate(conditions.GPU_ISOLATION, True, ENFORCED_BY_HAMI, message)
    else:
        message = "MPS enforces the limits of compute and memory, for each process"
        said = ConditionUpdate(conditions.GPU_ISOLATION, True, ENFORCED, message)
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def _nodes_with_shares(view: JobView) -> list[Node]:
    """Return the nodes on which replicas share a GPU that an anchor holds, or HAMi."""
    known = view.observed.nodes
    if known is None or not view.may_run:
        return []
    names = {node_of(place) for place in view.assigned_nodes.values() if vgpu_of(place) is not None}
    nodes = (known.get(Key("", name)) for name in names)
    return [node for node in nodes if node is not None and gpu_sharing(node) in _SHARING]
