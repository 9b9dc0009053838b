"""Reads from the logs of anchor pods which GPU each has, and writes it into an annotation of the pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import structlog

from tarragon.base.clock import Clock
from tarragon.client.concurrent_writes import run_all
from tarragon.client.errors import ApiError, Invalid, NotFound
from tarragon.client.port import Client, LogOptions
from tarragon.client.wakeup import WakeupSignal
from tarragon.job.places import describe_place
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, PartialObjectMetadata
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION
from tarragon.kube.scheduling.node_gpu_sharing import is_gpu_uuid
from tarragon.operator.informers.gpu_anchors import GpuAnchors
from tarragon.plan.lifecycle.gpu_anchors import Anchor, AnchorState
from tarragon.plan.objects.gpu_anchors import ANCHOR_CONTAINER
from tarragon.plan.objects.vgpus import GpuWait

TAIL_LINES, MAX_BYTES = 20, 4096
REQUEST_SECONDS = 10.0
INITIAL_PAUSE, MAX_PAUSE = 0.5, 60.0
"""Bounds, in seconds, of the pause between two reads of one log: the first one may come before the first line."""
MAX_CONCURRENT = 16
MAX_QUOTED = 200

log = structlog.get_logger(__name__)


class UuidReader:
    """Reads while `run` is running, which is to be the leader's alone."""

    def __init__(self, cluster: Client, clock: Clock, anchors: GpuAnchors) -> None:
        self._cluster = cluster
        self._clock = clock
        self._anchors = anchors
        self._wakeup = WakeupSignal(clock)
        self._wakeup.set()
        self._reads: dict[str, tuple[int, float]] = {}
        """By UID, how often a log was read, and when it is read again."""
        anchors.on_change(self._wakeup.set)

    async def run(self) -> None:
        """Read until cancelled."""
        pause: float | None = None
        while True:
            await self._wakeup.wait(pause)
            self._wakeup.clear()
            unknown = {anchor.uid: anchor for anchor in self._anchors.anchors() if _is_unknown(anchor)}
            self._reads = {uid: read for uid, read in self._reads.items() if uid in unknown}
            now = self._clock.monotonic()
            due = [uid for uid in unknown if self._reads.get(uid, (0, now))[1] <= now]
            await run_all(self._read(unknown[uid]) for uid in due[:MAX_CONCURRENT])
            times = [self._reads.get(uid, (0, now))[1] for uid in unknown]
            pause = max(0.0, min(times) - self._clock.monotonic()) if times else None

    async def _read(self, anchor: Anchor) -> None:
        count, _ = self._reads.get(anchor.uid, (0, 0.0))
        problem = ""
        try:
            problem = await self._find(anchor)
        except NotFound:
            pass  # the cache will show that it is gone
        except TimeoutError:
            problem = f"its log was not read within {REQUEST_SECONDS:.0f} s"
        except ApiError as error:
            problem = f"its log can't be read: {error}"
        pause = min(INITIAL_PAUSE * 2.0 ** min(count, 20), MAX_PAUSE)
        self._reads[anchor.uid] = count + 1, self._clock.monotonic() + pause
        if problem and count:
            name = f"{describe_place(anchor.place)} has no GPU yet: anchor pod {anchor.key}"
            self._anchors.report_problem(anchor.place, GpuWait(message=f"{name}: {problem}", is_problem=True))
            log.warning("the GPU of an anchor is not known", anchor=str(anchor.key), problem=problem)

    async def _find(self, anchor: Anchor) -> str:
        """Record the anchor's GPU. Returns why that is not possible; empty if it was."""
        lines = list(_lines(await self._log(anchor.key)))
        uuid = next((line for line in lines if is_gpu_uuid(line)), None)
        if uuid is None:
            return f"its log names no GPU: {' '.join(lines)[:MAX_QUOTED]!r}"
        metadata = {"uid": anchor.uid, "annotations": {GPU_UUID_ANNOTATION: uuid}}
        try:
            await self._cluster.patch(PODS.with_model(PartialObjectMetadata), anchor.key, {"metadata": metadata})
        except Invalid:
            return ""  # There is another pod of that name by now.
        log.info("an anchor holds a GPU", anchor=str(anchor.key), place=anchor.place, gpu=uuid)
        return ""

    async def _log(self, pod: Key) -> bytes:
        options = LogOptions(container=ANCHOR_CONTAINER, tail_lines=TAIL_LINES)
        text = b""
        async with asyncio.timeout(REQUEST_SECONDS):
            async with aclosing(self._cluster.pod_log(pod, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    text += chunk
                    if len(text) >= MAX_BYTES:
                        break
        return text[:MAX_BYTES]


def _is_unknown(anchor: Anchor) -> bool:
    return anchor.state is AnchorState.RUNNING and not anchor.gpu


def _lines(text: bytes) -> Iterator[str]:
    return (line.strip() for line in text.decode(errors="replace").splitlines() if line.strip())
