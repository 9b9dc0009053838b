"""Starts the containers of one pod, and remembers what each of them lacks that could not be started."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tarragon.base.errors import TarragonError
from tarragon.client.errors import ApiError
from tarragon.localcluster.kubelet.base.errors import CannotMount, CannotStart
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.pod.checkpoint import Track, identity_of
from tarragon.localcluster.kubelet.pod.context import Ground
from tarragon.localcluster.kubelet.pod.launch import Order
from tarragon.localcluster.kubelet.pod.records import moment
from tarragon.localcluster.kubelet.probes.handlers import Tell
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Trouble

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Between two attempts at something that lacks something."""


class Starting:
    """`begun` is when the latest run was begun (monotonic); `troubles` are by container."""

    def __init__(self, ground: Ground, track: Track, tell: Tell) -> None:
        self._ground = ground
        self._clock = ground.clock
        self._track = track
        self._tell = tell
        self._pauses: dict[str, float] = {}
        self.begun = 0.0
        self.troubles: dict[str, Trouble] = {}

    async def start(self, pod: Pod, name: str, is_wanted: Callable[[], bool]) -> None:
        """Or write down why not. `is_wanted` is asked again when everything is prepared, which may take its time."""
        container = next(each for each in pod.spec.all_containers if each.name == name)
        try:
            await self._launch(pod, container, is_wanted)
        except CannotMount as lack:
            self._in_trouble(container, lack.reason, str(lack), "FailedMount")
        except CannotStart as lack:
            self._in_trouble(container, lack.reason, str(lack))
        except ApiError as error:
            self._in_trouble(container, "ContainerCreating", f"the API cannot be read: {error}")
        except TarragonError as error:
            self._in_trouble(container, "CreateContainerError", str(error))
        except OSError as error:
            self._in_trouble(container, "CreateContainerError", f"{error.strerror}: {error.filename or 'the process'}")

    async def _launch(self, pod: Pod, container: Container, is_wanted: Callable[[], bool]) -> None:
        track, name = self._track, container.name
        number = track.next_number(name)
        identity = identity_of(self._ground.identity, pod.metadata.uid, name, number)
        order = Order(pod=pod, container=container, number=number, record=track.record, identity=identity)
        prepared = await self._ground.launcher.prepare(order)
        if track.record.volumes is None:
            track.save(replace(track.record, volumes={name: str(place) for name, place in prepared.volumes.items()}))
        if not is_wanted():
            return
        folder = prepared.environment.folder
        track.begin(container, identity, folder)
        try:
            self._ground.shims.start(track.folder.run(name, number), prepared.launch)
        except OSError:
            track.give_up(name)
            raise
        self.begun = self._clock.monotonic()
        self.troubles.pop(name, None)
        self._pauses.pop(name, None)
        words = f'Container image "{container.image}" already present on machine: it stands for {folder}'
        self._tell("Normal", "Pulled", words)
        self._tell("Normal", "Created", f"Created container: {name}")

    def _in_trouble(self, container: Container, reason: str, message: str, event: str = "Failed") -> None:
        pause = min(self._pauses.get(container.name, FIRST_PAUSE / 2) * 2, LONGEST_PAUSE)
        self._pauses[container.name] = pause
        now = self._clock.now()
        until = moment(now.timestamp() + pause)
        self.troubles[container.name] = Trouble(reason=reason, message=message, since=now, until=until)
        self._tell("Warning", event, message if event != "Failed" else f"Error: {message}")
