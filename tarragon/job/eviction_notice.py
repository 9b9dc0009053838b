"""The annotations that announce an eviction to a pod: when to save a checkpoint, and when the pod is deleted.

Programs read them through a downward API volume. They are the only record, so a restarted operator keeps to the times
that were announced.
"""

from __future__ import annotations

import datetime as dt

from tarragon.job import training_operator_status
from tarragon.kube.core import ContainerStatus, Pod

EVICTION_TIME_ANNOTATION = "tarragon.dev/leaving"
"""On a pod: when the operator deletes it, unless it ends earlier."""
CHECKPOINT_REQUEST_ANNOTATION = "tarragon.dev/checkpoint"
"""On a pod: when it was last asked to write a checkpoint. The chief's pod gets it too."""


def eviction_time(pod: Pod) -> dt.datetime | None:
    """When the pod will be deleted; None if there is no valid annotation, and then the pod gets a new one."""
    return training_operator_status.decode_time(pod.metadata.annotations.get(EVICTION_TIME_ANNOTATION))


def checkpoint_requested_at(pod: Pod) -> dt.datetime | None:
    return training_operator_status.decode_time(pod.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION))


def exited_after_notice(pod: Pod, main: ContainerStatus | None) -> bool:
    """Whether the program has ended since the pod was asked to leave, even if the kubelet has restarted it."""
    asked = checkpoint_requested_at(pod)
    if eviction_time(pod) is None or asked is None:
        return False
    ended = None if main is None else main.state.terminated or main.last_state.terminated
    if ended is None or ended.finished_at is None:
        return pod.is_finished
    # Both times have whole seconds, so an end in the same second may have followed the request.
    return ended.finished_at >= asked
