"""Creates and deletes anchor pods, so that each vGPU in use has one, and no other GPU is held.

All state that matters is in the cluster: an operator that dies between any two writes leaves anchors behind that the
next one keeps or deletes, and it has named no GPU in a pod that an anchor did not hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import structlog

from tarragon.base.clock import Clock
from tarragon.client.concurrent_writes import run_all
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from tarragon.client.leader_election import LeaseLost
from tarragon.client.port import Client, DeleteOptions
from tarragon.client.wakeup import WakeupSignal
from tarragon.job.places import describe_place
from tarragon.kube.core import PODS
from tarragon.kube.meta import PartialObjectMetadata
from tarragon.operator.gpu_anchors.uuid_reader import UuidReader
from tarragon.operator.informers.create_backoff import is_rejected_by_server
from tarragon.operator.informers.informers import Informers
from tarragon.plan.lifecycle.gpu_anchors import (
    Anchor,
    AnchorEnd,
    AnchorNeeds,
    AnchorRetry,
    after_failure,
    anchor_wait,
    decide_anchors,
    note_failures,
    usable_anchors,
)
from tarragon.plan.objects.gpu_anchors import CLOSING_ANNOTATION, anchor_name, build_anchor
from tarragon.plan.objects.vgpus import GpuWait

BURST_SECONDS = 0.02
"""Seconds to wait after a change: a gang's replicas come and go together."""
UNINFORMED_SECONDS = 5.0
CHANGED_SECONDS = 1.0
"""Seconds until an anchor is changed again of which another version was meant: by then the cache shows the new one."""
REPEAT_SECONDS = 10.0
"""Seconds until an anchor is changed again that the cache shows unchanged, or after an error."""
UNEXPECTED_ERROR_SECONDS = 10.0
LATE_WRITE_SECONDS = 1.0
"""Seconds until a new leader takes a GPU back: a pod that the one before it requested may be created late, and names a
GPU of which nothing else in the cluster says that it is needed. After a crash, this comes on top of the rest of the
Lease; after a release, or without leader election, it is all there is. kube-apiserver may work on a request for longer.
"""
ANCHORS = PODS.with_model(PartialObjectMetadata)

log = structlog.get_logger(__name__)


class AnchorController:
    """Works while `run` is running, which is to be the leader's alone."""

    def __init__(self, cluster: Client, clock: Clock, informers: Informers) -> None:
        """`cluster` writes through to the informers' caches."""
        self._cluster = cluster
        self._clock = clock
        self._informers = informers
        self._anchors = informers.gpu_anchors
        self._reader = UuidReader(cluster, clock, self._anchors)
        self._retries: dict[str, AnchorRetry] = {}
        self._pauses: dict[str, float] = {}
        """The UIDs of anchors that are not to be changed before these times."""
        self._takes_back_at = 0.0
        self._wakeup = WakeupSignal(clock)
        self._wakeup.set()
        self._anchors.on_change(self._wakeup.set)

    def stop(self) -> None:
        """Begin no more writes."""
        self._wakeup.shut_down()

    async def run(self) -> None:
        """Work until `stop`, and finish the writes in progress."""
        self._takes_back_at = self._clock.monotonic() + LATE_WRITE_SECONDS
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._reader.run())
            pause: float | None = None
            while True:
                await self._wakeup.wait(pause)
                if self._wakeup.is_shut_down:
                    break
                await self._clock.sleep(BURST_SECONDS)
                self._wakeup.clear()
                try:
                    pause = await self._step()
                except LeaseLost:
                    raise
                except Exception:
                    # GPUs that are shared must not stop all other jobs.
                    log.exception("unexpected error in the controller of anchors")
                    pause = UNEXPECTED_ERROR_SECONDS
            reader.cancel()

    async def _step(self) -> float | None:
        """Do what is to be done now. Returns the seconds until the next step if nothing changes, or None."""
        informers = self._informers
        if not informers.settings.anchor_namespace:
            return None
        if not informers.can_place_pods or not informers.nodes.has_synced:
            return UNINFORMED_SECONDS  # A node that can't be seen looks like one that is gone.
        needs, anchors, now = self._anchors.needs(), self._anchors.anchors(), self._clock.monotonic()
        self._pauses = {uid: at for uid, at in self._pauses.items() if at > now}
        self._retries = note_failures(needs, anchors, self._retries, now)
        self._report_problems(needs, anchors)
        actions = decide_anchors(needs, anchors, self._retries, now, takes_back_at=self._takes_back_at)
        await run_all(
            [
                *(self._delete(end) for end in actions.deletes if end.anchor.uid not in self._pauses),
                *(self._mark(end.anchor, "true") for end in actions.closes if end.anchor.uid not in self._pauses),
                *(self._mark(anchor, None) for anchor in actions.reopens if anchor.uid not in self._pauses),
                *map(self._create, actions.creates),
            ]
        )
        times = [*self._pauses.values(), *([] if actions.next_at is None else [actions.next_at])]
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def _report_problems(self, needs: AnchorNeeds, anchors: list[Anchor]) -> None:
        """Let jobs say what is wrong. What went wrong last is said until it is clear that it does not any more."""
        usable, faults = usable_anchors(anchors, needs.gpus_in_use)
        for place in list(self._anchors.problems):
            if place not in needs.kept or (place in usable and usable[place].gpu):
                self._anchors.report_problem(place, None)
        for anchor, problem in self._problems(anchors, faults):
            if anchor.place in needs.kept and anchor.place not in usable:
                if self._anchors.problems.get(anchor.place) != problem:
                    is_in_use = bool(needs.gpus_in_use.get(anchor.place))
                    log.warning("an anchor is of no use", anchor=str(anchor.key), why=problem.message, in_use=is_in_use)
                self._anchors.report_problem(anchor.place, problem)

    def _problems(self, anchors: list[Anchor], faults: Mapping[str, str]) -> Iterator[tuple[Anchor, GpuWait]]:
        for anchor in anchors:
            pod = self._anchors.pod_of(anchor)
            if anchor.uid in faults:
                message = f"{describe_place(anchor.place)} has no GPU: {faults[anchor.uid]}"
                yield anchor, GpuWait(message=message, is_problem=True, is_rejected=True)
            elif pod is not None and pod.is_finished:
                yield anchor, anchor_wait(anchor.place, pod)

    async def _create(self, place: str) -> None:
        settings = self._informers.settings
        node = self._anchors.node_at(place)
        if node is None or settings.gpu_anchors is None:
            return
        name = f"{settings.gpu_anchors.namespace}/{anchor_name(place)}"
        problem = ""
        try:
            await self._cluster.create(ANCHORS, build_anchor(place, node, settings.gpu_anchors, settings.own_image))
        except AlreadyExists:
            # Perhaps it is the anchor: then the cache will show it soon.
            problem = "another pod has this name" if place in self._retries else ""
        except ApiError as error:
            problem = f"can't be created: {error}" if is_rejected_by_server(error) else ""
            log.warning("an anchor was not created", anchor=name, error=str(error))
        else:
            log.info("anchor created", anchor=name, place=place)
            return
        self._retries[place] = after_failure(self._retries.get(place), "", self._clock.monotonic())
        self._wakeup.set()
        if problem:
            message = f"{describe_place(place)} has no GPU yet: anchor pod {name} {problem}"
            self._anchors.report_problem(place, GpuWait(message=message, is_problem=True))

    async def _mark(self, anchor: Anchor, value: str | None) -> None:
        """Mark an anchor as closing, or remove the mark."""
        metadata = {"uid": anchor.uid, "annotations": {CLOSING_ANNOTATION: value}}
        try:
            await self._cluster.patch(ANCHORS, anchor.key, {"metadata": metadata})
        except (NotFound, Invalid):
            self._pause(anchor, CHANGED_SECONDS)  # It is gone, and perhaps there is another pod of that name.
        except ApiError as error:
            self._pause(anchor, REPEAT_SECONDS)
            log.warning("an anchor was not marked", anchor=str(anchor.key), error=str(error))

    async def _delete(self, end: AnchorEnd) -> None:
        anchor = end.anchor
        self._pause(anchor, REPEAT_SECONDS)
        # The version is the one with the mark, or one that holds no GPU.
        options = DeleteOptions(uid=anchor.uid, resource_version=anchor.resource_version)
        try:
            await self._cluster.delete(PODS, anchor.key, options)
        except (NotFound, Conflict):
            self._pause(anchor, CHANGED_SECONDS)
        except ApiError as error:
            log.warning("an anchor was not deleted", anchor=str(anchor.key), error=str(error))
        else:
            log.info("anchor deleted", anchor=str(anchor.key), place=anchor.place, reason=end.reason)

    def _pause(self, anchor: Anchor, seconds: float) -> None:
        self._pauses[anchor.uid] = self._clock.monotonic() + seconds
