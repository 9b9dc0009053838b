"""Decides which anchor pods to create and which to delete, so that each vGPU in use has one that holds its GPU.

Everything follows from the objects of the cluster. A vGPU needs its anchor while an admission assigns a replica to it,
or a pod that names its GPU is there. An anchor that nobody needs is marked as closing at first, and then deleted in the
version that has the mark. So a pod gets the GPU of an anchor without the mark only, and a delete that is under way does
not hold for an anchor from which the mark has been removed since, whoever requested it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, auto

from tarragon.job.places import describe_place, node_of
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION
from tarragon.kube.scheduling.node_gpu_sharing import is_gpu_uuid
from tarragon.plan.objects.gpu_anchors import ANCHOR_CONTAINER, CLOSING_ANNOTATION
from tarragon.plan.objects.vgpus import GpuWait
from tarragon.plan.view.stalls import find_stall

INITIAL_PAUSE, MAX_PAUSE = 2.0, 120.0
"""Bounds, in seconds, of the pause before a vGPU's next anchor, after one was rejected or of no use."""


class AnchorState(Enum):
    STARTING = auto()
    RUNNING = auto()
    FAILED = auto()
    """It holds no GPU: its node has rejected or evicted it."""
    LEAVING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """An anchor pod as the cache shows it."""

    key: Key
    uid: str
    resource_version: str
    place: str
    state: AnchorState
    is_closing: bool = False
    """Whether it is marked as such: no new pod gets its GPU."""
    created_at: dt.datetime | None = None
    gpu: str = ""
    """The UUID of its GPU; empty until it is known."""

    @classmethod
    def of(cls, pod: Pod, place: str) -> Anchor:
        gpu = pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "")
        return cls(
            key=pod.metadata.key,
            uid=pod.metadata.uid,
            resource_version=pod.metadata.resource_version,
            place=place,
            state=_state(pod),
            is_closing=CLOSING_ANNOTATION in pod.metadata.annotations,
            created_at=pod.metadata.creation_timestamp,
            gpu=gpu if is_gpu_uuid(gpu) else "",
        )

    @property
    def holds_gpu(self) -> bool:
        """Whether it holds a GPU, or is about to, and is to stay."""
        return self.state in {AnchorState.STARTING, AnchorState.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorNeeds:
    """The places that need an anchor."""

    nodes: Container[str]
    """All nodes of the cluster."""
    kept: AbstractSet[str]
    """Places whose anchor stays if there is one: perhaps an admission there is still to be verified."""
    wanted: AbstractSet[str]
    """Those of them that have none, and get one."""
    gpus_in_use: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """The UUIDs that pods at a place name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRetry:
    """The last failure of a place's anchors, and when the next attempt is due, in monotonic seconds."""

    uid: str
    failures: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorEnd:
    """An anchor that is to be marked as closing, or to be deleted if it has the mark or holds no GPU."""

    anchor: Anchor
    reason: str
    due_at: float = 0.0
    """In monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorActions:
    creates: Sequence[str] = ()
    """The places that get an anchor."""
    closes: Sequence[AnchorEnd] = ()
    """The anchors that get the mark."""
    reopens: Sequence[Anchor] = ()
    """The anchors that lose the mark, because they are needed again."""
    deletes: Sequence[AnchorEnd] = ()
    next_at: float | None = None
    """When to decide again even if nothing changes, in monotonic seconds."""


Retries = Mapping[str, AnchorRetry]
"""By place."""


def usable_anchors(
    anchors: Iterable[Anchor], in_use: Mapping[str, AbstractSet[str]]
) -> tuple[Mapping[str, Anchor], Mapping[str, str]]:
    """Return the anchor of each place, and why others are of no use, by their UIDs.

    Of two at one place, or with one GPU, the one whose GPU is in use is right, else the older one.
    """
    by_place: dict[str, Anchor] = {}
    by_gpu: dict[tuple[str, str], Anchor] = {}
    faults: dict[str, str] = {}
    for anchor in sorted((each for each in anchors if each.holds_gpu), key=lambda each: _rank(each, in_use)):
        gpu = node_of(anchor.place), anchor.gpu
        if anchor.place in by_place:
            faults[anchor.uid] = f"{describe_place(anchor.place)} has the anchor pod {by_place[anchor.place].key}"
        elif anchor.gpu and gpu in by_gpu:
            faults[anchor.uid] = (
                f"its GPU {anchor.gpu} is that of the anchor pod {by_gpu[gpu].key}, too; "
                "does the node's device plugin offer each GPU several times?"
            )
        else:
            by_place[anchor.place] = anchor
            by_gpu[gpu] = anchor
    return by_place, faults


def note_failures(needs: AnchorNeeds, anchors: Iterable[Anchor], before: Retries, now: float) -> dict[str, AnchorRetry]:
    """Return when the next attempts are due: later after each failure in a row, of places that still need an anchor."""
    anchors = list(anchors)
    usable, faults = usable_anchors(anchors, needs.gpus_in_use)
    is_solved = {place for place, anchor in usable.items() if anchor.gpu}
    retries = {place: retry for place, retry in before.items() if place in needs.kept and place not in is_solved}
    for anchor in anchors:
        failed = anchor.state is AnchorState.FAILED or anchor.uid in faults
        if failed and anchor.place in needs.kept and anchor.place not in is_solved:
            retries[anchor.place] = after_failure(retries.get(anchor.place), anchor.uid, now)
    return retries


def after_failure(before: AnchorRetry | None, uid: str, now: float) -> AnchorRetry:
    """Return the next attempt after this anchor has failed; no UID stands for one that could not be created."""
    if before is None:
        return AnchorRetry(uid=uid, failures=1, at=now + INITIAL_PAUSE)
    if uid and before.uid == uid:
        return before
    pause = min(INITIAL_PAUSE * 2.0 ** min(before.failures, 20), MAX_PAUSE)
    return AnchorRetry(uid=uid, failures=before.failures + 1, at=now + pause)


def decide_anchors(
    needs: AnchorNeeds, anchors: Sequence[Anchor], retries: Retries, now: float, *, takes_back_at: float = 0.0
) -> AnchorActions:
    """Return what to do about the anchors now. Before `takes_back_at`, in monotonic seconds, none loses its GPU."""
    usable, faults = usable_anchors(anchors, needs.gpus_in_use)
    ends = [end for anchor in anchors for end in [_end(anchor, needs, faults, retries)] if end is not None]
    ending = {end.anchor.uid for end in ends}
    missing = sorted(needs.wanted - {anchor.place for anchor in anchors})
    due_at = {
        place: retries[place].at if place in retries else 0.0 for place in missing if node_of(place) in needs.nodes
    }
    times = [*due_at.values(), *(end.due_at for end in ends), takes_back_at]
    due = [end for end in ends if end.due_at <= now]
    return AnchorActions(
        creates=[place for place, at in due_at.items() if at <= now],
        closes=[end for end in due if end.anchor.holds_gpu and not end.anchor.is_closing],
        reopens=[anchor for anchor in usable.values() if anchor.is_closing and anchor.uid not in ending],
        deletes=[end for end in due if not end.anchor.holds_gpu or (end.anchor.is_closing and now >= takes_back_at)],
        next_at=min((at for at in times if at > now), default=None),
    )


def anchor_wait(place: str, pod: Pod | None) -> GpuWait:
    """Return why there is no GPU at a place with this anchor pod, or with none."""
    if pod is None:
        return GpuWait(message=f"{describe_place(place)} has no anchor pod yet")
    name = f"{describe_place(place)} has no GPU yet: its anchor pod {pod.metadata.key}"
    if pod.metadata.is_being_deleted:
        return GpuWait(message=f"{name} is being deleted")
    if pod.is_finished:
        return GpuWait(message=f"{name} has failed: {failure(pod)}", is_problem=True, is_rejected=True)
    stall = find_stall(pod, ANCHOR_CONTAINER)
    if stall is not None:
        is_problem = stall.report_at is None
        return GpuWait(message=f"{name} does not run: {stall.reason}: {stall.message}", is_problem=is_problem)
    return GpuWait(message=f"{name} has not said which GPU it has" if _runs(pod) else f"{name} is starting")


def failure(pod: Pod) -> str:
    """Return why a pod has failed, in its kubelet's words."""
    return ": ".join(filter(None, (pod.status.reason, pod.status.message))) or f"it is {pod.status.phase}"


def _end(anchor: Anchor, needs: AnchorNeeds, faults: Mapping[str, str], retries: Retries) -> AnchorEnd | None:
    """Return why the anchor is to go; None if it stays, or is going."""
    if anchor.state is AnchorState.LEAVING:
        return None
    if node_of(anchor.place) not in needs.nodes:
        return AnchorEnd(anchor=anchor, reason="its node is gone")
    if anchor.place not in needs.kept:
        return AnchorEnd(anchor=anchor, reason="nobody shares its GPU any more")
    if anchor.state is AnchorState.FAILED:
        # It stays until the next attempt, to be looked at.
        retry = retries.get(anchor.place)
        at = retry.at if retry is not None and retry.uid == anchor.uid else 0.0
        return AnchorEnd(anchor=anchor, reason="it has failed", due_at=at)
    if anchor.uid in faults:
        return AnchorEnd(anchor=anchor, reason=faults[anchor.uid])
    return None


def _rank(anchor: Anchor, in_use: Mapping[str, AbstractSet[str]]) -> tuple[bool, bool, float, Key]:
    is_used = bool(anchor.gpu) and anchor.gpu in in_use.get(anchor.place, ())
    created = 0.0 if anchor.created_at is None else anchor.created_at.timestamp()
    return not is_used, anchor.is_closing, created, anchor.key


def _state(pod: Pod) -> AnchorState:
    if pod.metadata.is_being_deleted:
        return AnchorState.LEAVING
    if pod.is_finished:
        return AnchorState.FAILED
    return AnchorState.RUNNING if _runs(pod) else AnchorState.STARTING


def _runs(pod: Pod) -> bool:
    status = pod.container_status(ANCHOR_CONTAINER)
    return status is not None and status.state.running is not None
