"""The annotations that announce an eviction to a pod: when to save a checkpoint, and when the pod is deleted.

Programs read them through a downward API volume. They are the only record, so a restarted operator keeps to the times
that were announced.
"""

from __future__ import annotations

import datetime as dt

from tarragon.job import classic
from tarragon.kube.core import ContainerStatus, Pod

LEAVING = "tarragon.dev/leaving"
"""On a pod: when the operator deletes it, unless it ends earlier."""
CHECKPOINT = "tarragon.dev/checkpoint"
"""On a pod: when it was last asked to write a checkpoint. The chief's pod gets it too."""


def leaves_at(pod: Pod) -> dt.datetime | None:
    """When the pod will be deleted; None if there is no valid annotation, and then the pod gets a new one."""
    return classic.time(pod.metadata.annotations.get(LEAVING))


def asked_to_save_at(pod: Pod) -> dt.datetime | None:
    return classic.time(pod.metadata.annotations.get(CHECKPOINT))


def left_by_itself(pod: Pod, main: ContainerStatus | None) -> bool:
    """Whether the program has ended since the pod was asked to leave, even if the kubelet has restarted it."""
    asked = asked_to_save_at(pod)
    if leaves_at(pod) is None or asked is None:
        return False
    ended = None if main is None else main.state.terminated or main.last_state.terminated
    if ended is None or ended.finished_at is None:
        return pod.is_finished
    # Both times have whole seconds, so an end in the same second may have followed the request.
    return ended.finished_at >= asked
