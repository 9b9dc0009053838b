"""What `kubectl logs` is answered for the pods of one node, refusals included."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarragon.base.clock import Clock
from tarragon.base.times import later
from tarragon.client.errors import ApiError, from_status
from tarragon.client.port import LogOptions
from tarragon.localcluster.api.containers import container_asked
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod.logs import Wanted, follow, read
from tarragon.localcluster.kubelet.shim.shim_client import state_of


class NodeLogs:
    """Reads what the containers of a node have said; needs no kubelet that runs, only its folder."""

    def __init__(self, folder: NodeFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def read(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Chunks. `pod` is the whole object. Raises BadRequest for a container that has no such log."""
        metadata = pod["metadata"]
        container = container_asked(pod, options.container)
        status = _status(pod, container)
        logs = self._folder.pod_logs(metadata["namespace"], metadata["name"], metadata["uid"])
        asked = _Asked(pod=metadata["name"], container=container, previous=options.previous)
        number = _number(logs.numbers(container), status, asked)
        log = logs.log(container, number)
        wanted = Wanted(timestamps=options.timestamps, tail=options.tail_lines, since=self._since(options))
        if not options.follow:
            for chunk in read(log, wanted):
                yield chunk
            return
        run = self._folder.pod(metadata["uid"]).run(container, number)
        async for chunk in follow(log, wanted, lambda: _has_ended(run), self._clock):
            yield chunk

    def _since(self, options: LogOptions) -> dt.datetime | None:
        if options.since_seconds is None:
            return None
        return later(self._clock.now(), -options.since_seconds)


def _has_ended(run: Path) -> bool:
    state = state_of(run)
    # A run that is not known any more belongs to a pod that has been removed.
    return state.has_ended if state else not (run / "spec.json").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the request was about, for the words of a refusal."""

    pod: str
    container: str
    previous: bool


def _status(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    status = pod.get("status") or {}
    known: Iterable[Mapping[str, Any]] = (status.get("containerStatuses") or []) + (
        status.get("initContainerStatuses") or []
    )
    return next((each for each in known if each.get("name") == container), {})


def _number(known: list[int], status: Mapping[str, Any], asked: _Asked) -> int:
    """Which run is meant. Raises BadRequest when there is no such run."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    if asked.previous:
        # A container that waits for its restart has no present run: the latest is the previous one.
        before = known if waiting else known[:-1]
        if not before:
            raise bad_request(f'previous terminated container "{asked.container}" in pod "{asked.pod}" not found')
        return before[-1]
    if not known:
        reason = waiting.get("reason") or "ContainerCreating"
        raise bad_request(f'container "{asked.container}" in pod "{asked.pod}" is waiting to start: {reason}')
    return known[-1]


def bad_request(message: str) -> ApiError:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400}
    return from_status({**status, "reason": "BadRequest", "message": message})
