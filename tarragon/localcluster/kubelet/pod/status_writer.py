"""Writes one pod's status: only changes, only the newest one, and again after a conflict. Also some annotations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from tarragon.client.port import Client
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.localcluster.kubelet.base.spec import KUBELET_PODS, Pod
from tarragon.localcluster.kubelet.pod.status import Json, owned_fields

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
REFUSED_PAUSE = 30.0
"""The pause after the API rejected a status: a bug or a missing permission does not resolve quickly."""

_log = structlog.get_logger()

Render = Callable[[Pod], Json]
"""Computes the status from the stored pod, whose other conditions are kept."""


class StatusWriter:
    """Writes the status in the background. `latest` is the newest known state of the pod in the API."""

    def __init__(self, cluster: Client, clock: Clock, pod: Pod) -> None:
        self._cluster = cluster
        self._clock = clock
        self.latest = pod
        self._render: Render | None = None
        self._annotations: Mapping[str, str] = {}
        self._work = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()

    def observe(self, pod: Pod) -> None:
        """Take over the pod from the watch, unless the reply to our own write was newer."""
        if _version(pod) >= _version(self.latest):
            self.latest = pod

    def offer(self, render: Render) -> None:
        """Schedule a write, which replaces a status that was offered but not written yet."""
        status = render(self.latest)
        if not self._written.is_set() or create_merge_patch(owned_fields(self.latest.status, status), status):
            self._render = render
            self._written.clear()
            self._work.set()

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Set annotations of the pod before its next status is written. They only inform: an error is not retried."""
        self._annotations = annotations

    @property
    def is_done(self) -> bool:
        return self._written.is_set()

    async def wait_written(self) -> None:
        """Return when nothing is left to write."""
        await self._written.wait()

    def abandon(self) -> None:
        """Release those who wait in `wait_written`, as the writer has stopped."""
        self._written.set()

    async def run(self) -> None:
        """Write until cancelled, or until the pod is deleted."""
        pause = FIRST_PAUSE
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._write()
                pause = FIRST_PAUSE
            except NotFound:
                self._written.set()
                return
            except ApiError as error:
                self._work.set()
                await self._pause(error, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if not self._work.is_set():
                    self._written.set()

    async def _pause(self, error: ApiError, pause: float) -> None:
        if isinstance(error, Conflict):
            return
        if not isinstance(error, Unavailable | TooManyRequests):
            pause = REFUSED_PAUSE
            _log.warning("the API rejected a pod's status", pod=str(self.latest.metadata.key), error=str(error))
        await self._clock.sleep(max(pause, error.retry_after))

    async def _write(self) -> None:
        if self._render is None:
            return
        await self._write_annotations()
        status = self._render(self.latest)
        changes = create_merge_patch(owned_fields(self.latest.status, status), status)
        if not changes:
            return
        metadata = self.latest.metadata
        body = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": changes}
        try:
            self.latest = await self._cluster.patch(KUBELET_PODS, metadata.key, body, subresource="status")
        except Conflict:
            stored = await self._cluster.get(KUBELET_PODS, metadata.key)
            if stored.metadata.uid == metadata.uid:
                self.latest = stored
                raise
            self._render = None  # another pod has this name: ours was deleted

    async def _write_annotations(self) -> None:
        annotations, self._annotations = self._annotations, {}
        metadata = self.latest.metadata
        if annotations.items() <= metadata.annotations.items():
            return
        body = {"metadata": {"uid": metadata.uid, "annotations": dict(annotations)}}
        try:
            self.latest = await self._cluster.patch(KUBELET_PODS, metadata.key, body)
        except ApiError as error:
            _log.info("a pod could not be annotated", pod=str(metadata.key), error=str(error))


def _version(pod: Pod) -> int:
    """The resource version as a number. Newer is greater: guaranteed since Kubernetes 1.35, and true before."""
    version = pod.metadata.resource_version
    return int(version) if version.isdigit() else 0
