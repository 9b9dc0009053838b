"""Starts the containers of one pod, and keeps the reason why a container could not be started."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tarragon.base.errors import TarragonError
from tarragon.client.errors import ApiError
from tarragon.localcluster.kubelet.base.errors import CannotMount, CannotStart
from tarragon.localcluster.kubelet.base.pod_lifecycle import StartFailure
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.pod.checkpoint import PodCheckpoint, new_run_identity
from tarragon.localcluster.kubelet.pod.context import NodeContext
from tarragon.localcluster.kubelet.pod.launch import StartRequest
from tarragon.localcluster.kubelet.pod.records import from_timestamp
from tarragon.localcluster.kubelet.probes.handlers import RecordEvent

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts to start a container."""


class ContainerStarter:
    """Starts containers. `last_start` is when the latest run started (monotonic); `failures` are by container."""

    def __init__(self, context: NodeContext, checkpoint: PodCheckpoint, record_event: RecordEvent) -> None:
        self._context = context
        self._clock = context.clock
        self._checkpoint = checkpoint
        self._record_event = record_event
        self._pauses: dict[str, float] = {}
        self.last_start = 0.0
        self.failures: dict[str, StartFailure] = {}

    async def start(self, pod: Pod, name: str, is_wanted: Callable[[], bool]) -> None:
        """Start a container, or keep why it cannot start. `is_wanted` is asked again after the preparation."""
        container = next(each for each in pod.spec.all_containers if each.name == name)
        try:
            await self._launch(pod, container, is_wanted)
        except CannotMount as error:
            self._failed(container, error.reason, str(error), "FailedMount")
        except CannotStart as error:
            self._failed(container, error.reason, str(error))
        except ApiError as error:
            self._failed(container, "ContainerCreating", f"the API cannot be read: {error}")
        except TarragonError as error:
            self._failed(container, "CreateContainerError", str(error))
        except OSError as error:
            self._failed(container, "CreateContainerError", f"{error.strerror}: {error.filename or 'the process'}")

    async def _launch(self, pod: Pod, container: Container, is_wanted: Callable[[], bool]) -> None:
        checkpoint, name = self._checkpoint, container.name
        number = checkpoint.next_number(name)
        identity = new_run_identity(self._context.identity, pod.metadata.uid, name, number)
        order = StartRequest(pod=pod, container=container, number=number, record=checkpoint.record, identity=identity)
        prepared = await self._context.launcher.prepare(order)
        if checkpoint.record.volumes is None:
            volumes = {volume: str(folder) for volume, folder in prepared.volumes.items()}
            checkpoint.save(replace(checkpoint.record, volumes=volumes))
        if not is_wanted():
            return
        folder = prepared.environment.folder
        checkpoint.begin(container, identity, folder, prepared.thread_share)
        try:
            self._context.shims.start(checkpoint.folder.run(name, number), prepared.launch)
        except OSError:
            checkpoint.drop_run(name)
            raise
        self.last_start = self._clock.monotonic()
        self.failures.pop(name, None)
        self._pauses.pop(name, None)
        message = f'Container image "{container.image}" already present on machine: it maps to {folder}'
        self._record_event("Normal", "Pulled", message)
        self._record_event("Normal", "Created", f"Created container: {name}")

    def _failed(self, container: Container, reason: str, message: str, event: str = "Failed") -> None:
        pause = min(self._pauses.get(container.name, FIRST_PAUSE / 2) * 2, LONGEST_PAUSE)
        self._pauses[container.name] = pause
        now = self._clock.now()
        until = from_timestamp(now.timestamp() + pause)
        self.failures[container.name] = StartFailure(reason=reason, message=message, since=now, until=until)
        self._record_event("Warning", event, message if event != "Failed" else f"Error: {message}")
