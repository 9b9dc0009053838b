"""How many threads the programs of a container use that sets no CPUs: such pods share the cores of their machine. Pure.

The number is decided when a container starts, and stays: programs read it once. So a pod that starts beside others
gets what would be its share if all had started now, and those before it keep more than theirs until they restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarragon.kube.scheduling.cpu_peers import recorded_peers, sets_cpus
from tarragon.localcluster.kubelet.base.spec import Pod


def shares_cpus(pod: Pod) -> bool:
    """Whether none of the pod's containers sets CPUs."""
    resources = ({"requests": each.resources.requests, "limits": each.resources.limits} for each in pod.spec.containers)
    return not sets_cpus(resources)


def thread_share(pod: Pod, pods: Iterable[Pod], cores: int) -> int:
    """The threads of a container of the pod that sets no CPUs, at least 1. `pods` are those of the node.

    A job counts as many programs as it says, as the last of its pods may not exist yet, and another controller the pods
    that exist. Pods that have ended or are ending leave their cores to others.
    """
    sharing = [
        each for each in pods if shares_cpus(each) and not each.is_finished and not each.metadata.is_being_deleted
    ]
    owner = pod.metadata.controller_identity
    siblings = {each.metadata.uid for each in sharing if owner and each.metadata.controller_identity == owner}
    others = {each.metadata.uid for each in sharing} - siblings - {pod.metadata.uid}
    own = recorded_peers(pod.metadata.annotations) or len(siblings | {pod.metadata.uid})
    return max(1, cores // (own + len(others)))
