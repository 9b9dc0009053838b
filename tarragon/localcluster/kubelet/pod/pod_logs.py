"""Answers log requests (`kubectl logs`) for the pods of one node, errors included."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarragon.base.clock import Clock
from tarragon.base.time_arithmetic import add_seconds
from tarragon.client.errors import ApiError, error_from_status
from tarragon.client.port import LogOptions
from tarragon.localcluster.api.container_selection import requested_container
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod.logs import LogSelection, follow, read
from tarragon.localcluster.kubelet.shim.shim_client import state_of


class NodeLogs:
    """Reads the container logs of a node; only the node's folder is needed, not a running kubelet."""

    def __init__(self, folder: NodeFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def read(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """The log in chunks. `pod` is the complete object. Raises BadRequest for a container without such a log."""
        metadata = pod["metadata"]
        container = requested_container(pod, options.container)
        status = _status(pod, container)
        logs = self._folder.pod_logs(metadata["namespace"], metadata["name"], metadata["uid"])
        target = _Target(pod=metadata["name"], container=container, previous=options.previous)
        number = _number(logs.run_numbers(container), status, target)
        log = logs.log(container, number)
        wanted = LogSelection(timestamps=options.timestamps, tail=options.tail_lines, since=self._since(options))
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
        return add_seconds(self._clock.now(), -options.since_seconds)


def _has_ended(run: Path) -> bool:
    state = state_of(run)
    # A run without a record belongs to a pod that was removed.
    return state.has_ended if state else not (run / "spec.json").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The subject of a request, for its error messages."""

    pod: str
    container: str
    previous: bool


def _status(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    status = pod.get("status") or {}
    statuses: Iterable[Mapping[str, Any]] = (status.get("containerStatuses") or []) + (
        status.get("initContainerStatuses") or []
    )
    return next((each for each in statuses if each.get("name") == container), {})


def _number(recorded: list[int], status: Mapping[str, Any], target: _Target) -> int:
    """The number of the requested run. Raises BadRequest when there is no such run."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    if target.previous:
        # A container that waits for its restart has no current run: the latest is the previous one.
        previous = recorded if waiting else recorded[:-1]
        if not previous:
            raise bad_request(f'previous terminated container "{target.container}" in pod "{target.pod}" not found')
        return previous[-1]
    if not recorded:
        reason = waiting.get("reason") or "ContainerCreating"
        raise bad_request(f'container "{target.container}" in pod "{target.pod}" is waiting to start: {reason}')
    return recorded[-1]


def bad_request(message: str) -> ApiError:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400}
    return error_from_status({**status, "reason": "BadRequest", "message": message})
