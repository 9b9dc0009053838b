"""Looks after the running containers of one pod: their postStart hooks, then their probes.

Each run that has any of these has a task; all others cost nothing. What is found is kept by whoever asks `fitness`:
another kubelet's attendant goes on from there, and does a hook again whose end nobody has written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.base.spec import Handler, Probe
from tarragon.localcluster.kubelet.network.address_translation import Place
from tarragon.localcluster.kubelet.probes import results
from tarragon.localcluster.kubelet.probes.handlers import Handlers, HookFailed, Tell
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Fitness, Run
from tarragon.localcluster.kubelet.probes.results import Finding, Kind, Tally

POST_START = "FailedPostStartHook"
TRIES = 3
"""Of one probe that cannot even be tried, before that is told."""
ANEW_SECONDS = 10.0
"""After something that nobody has foreseen."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Attended:
    number: int
    fitness: Fitness
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which probe, of which run."""

    place: Place
    run: Run
    kind: Kind
    probe: Probe


class Attendant:
    """`changed` is called when the fitness of some run is another than before."""

    def __init__(self, handlers: Handlers, clock: Clock, tell: Tell, changed: Callable[[], None]) -> None:
        self._handlers = handlers
        self._clock = clock
        self._tell = tell
        self._changed = changed
        self._attended: dict[str, _Attended] = {}
        self._is_halted = False

    @property
    def fitness(self) -> Mapping[str, tuple[int, Fitness]]:
        """Number and fitness of the runs that are looked after, by container."""
        return {name: (each.number, each.fitness) for name, each in self._attended.items()}

    def attend(self, place: Place, run: Run, known: Fitness) -> None:
        """From now on, once for each run; `known` is what is known of it."""
        attended = self._attended.get(place.container.name)
        if attended is not None and attended.number == run.number:
            return
        self.leave(place.container.name)
        attended = self._attended[place.container.name] = _Attended(run.number, known)
        attended.task = asyncio.create_task(self._attend(place, run, attended))

    def leave(self, name: str) -> None:
        """The run has ended."""
        attended = self._attended.pop(name, None)
        if attended is not None and attended.task is not None:
            attended.task.cancel()

    def halt(self) -> None:
        """The pod ends: nobody is found unfit any more, but whether containers are ready still counts."""
        self._is_halted = True

    def close(self) -> None:
        for name in list(self._attended):
            self.leave(name)

    async def _attend(self, place: Place, run: Run, attended: _Attended) -> None:
        """Whatever happens: a container whose probes have ended unnoticed would be ready, or not, for ever."""
        while True:
            try:
                return await self._look_after(place, run, attended)
            except Exception:  # noqa: BLE001 - whatever it is, probing goes on
                _log.exception("looking after a container has failed, and begins anew", container=place.container.name)
                await self._clock.sleep(ANEW_SECONDS)

    async def _look_after(self, place: Place, run: Run, attended: _Attended) -> None:
        if attended.fitness.unfit == POST_START:
            return
        hook = place.container.post_start
        if hook is not None and not attended.fitness.is_hooked and not await self._hook(place, hook, attended):
            return
        startup = place.container.startup_probe
        if startup is not None and not attended.fitness.is_up:
            if not await anext(self._states(_Asked(place, run, Kind.STARTUP, startup), Tally(state=None))):
                self._set(attended, results.unfit(attended.fitness, Kind.STARTUP))
                return
            self._set(attended, replace(attended.fitness, is_up=True))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_alive(place, run, attended))
            tasks.create_task(self._keep_ready(place, run, attended))

    async def _hook(self, place: Place, hook: Handler, attended: _Attended) -> bool:
        try:
            await self._handlers.carry_out(place, hook)
        except HookFailed:
            # As with a kubelet: what a hook says may be secret.
            self._tell("Warning", POST_START, "PostStartHook failed")
            self._set(attended, replace(attended.fitness, unfit=POST_START))
            return False
        self._set(attended, replace(attended.fitness, is_hooked=True))
        return True

    async def _keep_alive(self, place: Place, run: Run, attended: _Attended) -> None:
        probe = place.container.liveness_probe
        if probe is None or attended.fitness.unfit:
            return
        await anext(self._states(_Asked(place, run, Kind.LIVENESS, probe), Tally(state=True)))
        self._set(attended, results.unfit(attended.fitness, Kind.LIVENESS))

    async def _keep_ready(self, place: Place, run: Run, attended: _Attended) -> None:
        probe = place.container.readiness_probe
        if probe is None:
            return
        known = Tally(state=attended.fitness.is_ready)
        async for is_ready in self._states(_Asked(place, run, Kind.READINESS, probe), known):
            self._set(attended, replace(attended.fitness, is_ready=is_ready))

    async def _states(self, asked: _Asked, tally: Tally) -> AsyncIterator[bool]:
        """What the probe says, each time that it is something else."""
        probe = asked.probe
        await self._clock.sleep(self._delay(asked.run, probe))
        due = self._clock.monotonic()
        while True:
            finding = await self._try(asked)
            if said := results.told(asked.kind, finding):
                self._tell("Warning", *said)
            before, tally = tally.state, tally.after(finding, probe)
            if tally.state is not None and tally.state != before:
                yield tally.state
            due = max(due + probe.period_seconds, self._clock.monotonic())
            await self._clock.sleep(due - self._clock.monotonic())

    def _delay(self, run: Run, probe: Probe) -> float:
        gone = (self._clock.now() - run.started).total_seconds() if run.started else 0.0
        # Less than none when somebody has set the clock back.
        return max(0.0, probe.initial_delay_seconds - max(0.0, gone))

    async def _try(self, asked: _Asked) -> Finding:
        finding = Finding(is_well=None)
        for _ in range(TRIES):
            if self._is_halted and asked.kind is not Kind.READINESS:
                await asyncio.Event().wait()  # for ever: whoever ends is not asked any more whether it lives
            finding = await self._handlers.check(asked.place, asked.probe, asked.probe.timeout_seconds)
            if finding.is_well is not None:
                break
        return finding

    def _set(self, attended: _Attended, fitness: Fitness) -> None:
        if fitness != attended.fitness:
            attended.fitness = fitness
            self._changed()
