"""The note on a pod whose place was taken: that it is to save what it has done, and when it will be deleted.

Programs read it through a downward API volume. Nothing else remembers it, so an operator that comes after another one
goes by the very times that the program was told.
"""

from __future__ import annotations

import datetime as dt

from tarragon.job import classic
from tarragon.kube.core import ContainerStatus, Pod

LEAVING = "tarragon.dev/leaving"
"""On a pod: when it is deleted, unless it has ended by itself before."""
CHECKPOINT = "tarragon.dev/checkpoint"
"""On a pod: when it was last asked to write a checkpoint; also on that of the replica that decides the job."""


def leaves_at(pod: Pod) -> dt.datetime | None:
    """What can't be read is no note; the pod gets one that can."""
    return classic.time(pod.metadata.annotations.get(LEAVING))


def asked_to_save_at(pod: Pod) -> dt.datetime | None:
    return classic.time(pod.metadata.annotations.get(CHECKPOINT))


def left_by_itself(pod: Pod, main: ContainerStatus | None) -> bool:
    """Whether its program has ended since it was told to leave, also where the kubelet has started it again."""
    told = asked_to_save_at(pod)
    if leaves_at(pod) is None or told is None:
        return False
    ended = None if main is None else main.state.terminated or main.last_state.terminated
    if ended is None or ended.finished_at is None:
        return pod.is_finished
    # Times of containers have whole seconds, and so has that of the note: in the same second, it may have been told.
    return ended.finished_at >= told
