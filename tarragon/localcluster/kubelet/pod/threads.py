"""How many threads the programs of a container use that sets no CPUs: such pods share the cores of their machine. Pure.

The number is decided when a container starts, and stays: programs read it once. So a pod that starts beside others
gets what would be its share if all had started now, and those before it keep more than theirs until they restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tarragon.kube.meta import OwnerIdentity
from tarragon.kube.scheduling.cpu_peers import recorded_peers, sets_cpus
from tarragon.localcluster.kubelet.base.spec import Pod

ALL_SHARING = "*"
"""The group of all pods that share the cores."""

SharingGroup = OwnerIdentity | str
"""The pods that share the cores and have this controller, or this UID, or are on the node at all."""
CountOfGroup = Callable[[SharingGroup], int]


def shares_cpus(pod: Pod) -> bool:
    """Whether none of the pod's containers sets CPUs."""
    resources = ({"requests": each.resources.requests, "limits": each.resources.limits} for each in pod.spec.containers)
    return not sets_cpus(resources)


def sharing_groups(pod: Pod) -> Iterator[SharingGroup]:
    """Yields the groups of a pod; none if it sets CPUs. Pods that have ended or are ending leave their cores to others.

    An index of the node's pods counts them, as walking over all pods at each start would take longer than the start.
    """
    if pod.is_finished or pod.metadata.is_being_deleted or not shares_cpus(pod):
        return
    yield ALL_SHARING
    yield pod.metadata.uid
    owner = pod.metadata.controller_identity
    if owner is not None:
        yield owner


def no_pods(_group: SharingGroup) -> int:
    """Counts the pods of a node that has none."""
    return 0


def thread_share(pod: Pod, count: CountOfGroup, cores: int) -> int:
    """The threads of a container of the pod that sets no CPUs, at least 1. `count` counts the pods of the node.

    A job counts as many programs as it says, as the last of its pods may not exist yet, and another controller the pods
    that exist.
    """
    owner = pod.metadata.controller_identity
    itself = count(pod.metadata.uid)  # 0 if the node has not seen it yet
    siblings = itself if owner is None else count(owner)
    own = recorded_peers(pod.metadata.annotations) or siblings + 1 - itself
    return max(1, cores // (own + count(ALL_SHARING) - siblings))
