"""Runs the postStart hooks and then the probes of one pod's containers.

Each run with a hook or probe has a task; other runs cost nothing. The caller stores `fitness`, from which the prober of
a restarted kubelet continues; a hook whose end was not stored runs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.base.pod_lifecycle import ProbeStatus, Run
from tarragon.localcluster.kubelet.base.spec import Handler, Probe
from tarragon.localcluster.kubelet.network.container_ports import RunContext
from tarragon.localcluster.kubelet.probes import results
from tarragon.localcluster.kubelet.probes.handlers import ActionRunner, HookFailed, RecordEvent
from tarragon.localcluster.kubelet.probes.results import ProbeKind, ProbeResult, ProbeTally

FAILED_POST_START_HOOK = "FailedPostStartHook"
TRIES = 3
"""How often a probe that cannot run is tried before an event is recorded."""
RESTART_SECONDS = 10.0
"""The pause after an unexpected error."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _ProbedRun:
    """The run that is probed, and its results so far."""

    number: int
    fitness: ProbeStatus
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """A probe of a run."""

    place: RunContext
    run: Run
    kind: ProbeKind
    probe: Probe


class Prober:
    """Probes the containers of one pod. `changed` is called when the fitness of a run changes."""

    def __init__(
        self, handlers: ActionRunner, clock: Clock, record_event: RecordEvent, changed: Callable[[], None]
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        self._record_event = record_event
        self._changed = changed
        self._runs: dict[str, _ProbedRun] = {}
        self._is_halted = False

    @property
    def fitness(self) -> Mapping[str, tuple[int, ProbeStatus]]:
        """Number and fitness of the probed runs, by container."""
        return {name: (probed.number, probed.fitness) for name, probed in self._runs.items()}

    def start(self, place: RunContext, run: Run, known: ProbeStatus) -> None:
        """Start probing a run, unless it is probed already. `known` are its stored results."""
        probed = self._runs.get(place.container.name)
        if probed is not None and probed.number == run.number:
            return
        self.stop(place.container.name)
        probed = self._runs[place.container.name] = _ProbedRun(run.number, known)
        probed.task = asyncio.create_task(self._probe(place, run, probed))

    def stop(self, name: str) -> None:
        """Stop probing a container, whose run has ended."""
        probed = self._runs.pop(name, None)
        if probed is not None and probed.task is not None:
            probed.task.cancel()

    def stop_liveness(self) -> None:
        """Stop liveness and startup probes, as the pod is being stopped; readiness probes go on."""
        self._is_halted = True

    def close(self) -> None:
        for name in list(self._runs):
            self.stop(name)

    async def _probe(self, place: RunContext, run: Run, probed: _ProbedRun) -> None:
        """Run hook and probes, and restart them after any error: otherwise readiness would never change again."""
        while True:
            try:
                return await self._run_hook_and_probes(place, run, probed)
            except Exception:  # noqa: BLE001 - probing must go on after any error
                _log.exception("probing a container failed and is restarted", container=place.container.name)
                await self._clock.sleep(RESTART_SECONDS)

    async def _run_hook_and_probes(self, place: RunContext, run: Run, probed: _ProbedRun) -> None:
        if probed.fitness.unfit == FAILED_POST_START_HOOK:
            return
        hook = place.container.post_start
        if hook is not None and not probed.fitness.is_hooked and not await self._run_hook(place, hook, probed):
            return
        startup = place.container.startup_probe
        if startup is not None and not probed.fitness.is_up:
            if not await anext(self._states(_Target(place, run, ProbeKind.STARTUP, startup), ProbeTally(state=None))):
                self._set(probed, results.mark_failed(probed.fitness, ProbeKind.STARTUP))
                return
            self._set(probed, replace(probed.fitness, is_up=True))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_liveness(place, run, probed))
            tasks.create_task(self._watch_readiness(place, run, probed))

    async def _run_hook(self, place: RunContext, hook: Handler, probed: _ProbedRun) -> bool:
        try:
            await self._handlers.run_hook(place, hook)
        except HookFailed:
            # As in Kubernetes, the hook's output is left out: it may contain secrets.
            self._record_event("Warning", FAILED_POST_START_HOOK, "PostStartHook failed")
            self._set(probed, replace(probed.fitness, unfit=FAILED_POST_START_HOOK))
            return False
        self._set(probed, replace(probed.fitness, is_hooked=True))
        return True

    async def _watch_liveness(self, place: RunContext, run: Run, probed: _ProbedRun) -> None:
        probe = place.container.liveness_probe
        if probe is None or probed.fitness.unfit:
            return
        await anext(self._states(_Target(place, run, ProbeKind.LIVENESS, probe), ProbeTally(state=True)))
        self._set(probed, results.mark_failed(probed.fitness, ProbeKind.LIVENESS))

    async def _watch_readiness(self, place: RunContext, run: Run, probed: _ProbedRun) -> None:
        probe = place.container.readiness_probe
        if probe is None:
            return
        tally = ProbeTally(state=probed.fitness.is_ready)
        async for is_ready in self._states(_Target(place, run, ProbeKind.READINESS, probe), tally):
            self._set(probed, replace(probed.fitness, is_ready=is_ready))

    async def _states(self, target: _Target, tally: ProbeTally) -> AsyncIterator[bool]:
        """Yield the probe's state each time that it changes."""
        probe = target.probe
        await self._clock.sleep(self._delay(target.run, probe))
        due = self._clock.monotonic()
        while True:
            finding = await self._try(target)
            if event := results.event_of(target.kind, finding):
                self._record_event("Warning", *event)
            before, tally = tally.state, tally.after(finding, probe)
            if tally.state is not None and tally.state != before:
                yield tally.state
            due = max(due + probe.period_seconds, self._clock.monotonic())
            await self._clock.sleep(due - self._clock.monotonic())

    def _delay(self, run: Run, probe: Probe) -> float:
        elapsed = (self._clock.now() - run.started).total_seconds() if run.started else 0.0
        # Negative if the clock was set back.
        return max(0.0, probe.initial_delay_seconds - max(0.0, elapsed))

    async def _try(self, target: _Target) -> ProbeResult:
        finding = ProbeResult(succeeded=None)
        for _ in range(TRIES):
            if self._is_halted and target.kind is not ProbeKind.READINESS:
                await asyncio.Event().wait()  # forever: a pod that is being stopped is not probed for liveness
            finding = await self._handlers.probe(target.place, target.probe, target.probe.timeout_seconds)
            if finding.succeeded is not None:
                break
        return finding

    def _set(self, probed: _ProbedRun, fitness: ProbeStatus) -> None:
        if fitness != probed.fitness:
            probed.fitness = fitness
            self._changed()
