"""Hooks and probes of a run, with a manual clock."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.localcluster.kubelet.base.pod_lifecycle import ProbeStatus, Run
from tarragon.localcluster.kubelet.base.spec import Handler
from tarragon.localcluster.kubelet.network.container_ports import RunContext
from tarragon.localcluster.kubelet.probes.handlers import HookFailed
from tarragon.localcluster.kubelet.probes.prober import FAILED_POST_START_HOOK, RESTART_SECONDS, Prober
from tarragon.localcluster.kubelet.probes.results import ProbeResult, initial_status
from tests.localcluster.kubelet.builders import container_json, pod

PORTS = {"startupProbe": 1, "livenessProbe": 2, "readinessProbe": 3}


class Scripted:
    """Records the time of each try of a probe, by the probe's port; probes in `failing` fail."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.failing: set[int] = set()
        self.hook_fails = False
        self.is_broken = False
        self.tried: list[tuple[float, int]] = []

    async def probe(self, place: RunContext, handler: Handler, seconds: float) -> ProbeResult:  # noqa: ARG002 - needs no time
        assert handler.tcp_socket
        port = int(handler.tcp_socket.port)
        self.tried.append((self.clock.monotonic(), port))
        if self.is_broken:
            raise RuntimeError("unexpected")
        return ProbeResult(succeeded=port not in self.failing, output="failing")

    async def run_hook(self, place: RunContext, handler: Handler) -> None:  # noqa: ARG002 - there is only one
        if self.hook_fails:
            raise HookFailed("no")
        if handler.sleep:
            await self.clock.sleep(handler.sleep.seconds)


class Watch:
    """A prober with one container."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.handlers = Scripted(self.clock)
        self.events: list[tuple[str, str, str]] = []
        self.attendant = Prober(self.handlers, self.clock, lambda *event: self.events.append(event), lambda: None)

    async def attend(self, known: ProbeStatus | None = None, began: float = 0.0, **fields: Any) -> None:
        """Probe a run that started at `began` seconds by this clock."""
        described = pod("p", container_json(**fields))
        main = described.spec.containers[0]
        place = RunContext(pod=described, container=main, number=0, folder=Path("/nowhere"))
        run = Run(number=0, identity="x", started=self.clock.now() + dt.timedelta(seconds=began))
        self.attendant.start(place, run, initial_status(main) if known is None else known)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await self.clock.sleep(0)

    async def after(self, seconds: float) -> ProbeStatus:
        for _ in range(int(seconds * 2)):
            self.clock.advance(0.5)
            await self.settle()
        return self.fitness

    @property
    def fitness(self) -> ProbeStatus:
        return self.attendant.fitness["main"][1]

    def times(self, port: int) -> list[float]:
        return [moment for moment, tried in self.handlers.tried if tried == port]


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch()
    yield watch
    watch.attendant.close()


def probe(kind: str, **fields: Any) -> dict[str, Any]:
    return {kind: {"tcpSocket": {"port": PORTS[kind]}, **fields}}


async def test_a_probe_starts_after_its_delay_and_repeats_every_period(watch: Watch) -> None:
    await watch.attend(**probe("readinessProbe", initialDelaySeconds=5, periodSeconds=2))
    await watch.after(10)

    assert watch.times(3) == [5, 7, 9]


async def test_readiness_follows_the_thresholds_of_the_probe(watch: Watch) -> None:
    watch.handlers.failing = {3}
    await watch.attend(**probe("readinessProbe", periodSeconds=1, failureThreshold=2, successThreshold=2))
    assert not (await watch.after(3)).is_ready

    watch.handlers.failing = set()
    assert not (await watch.after(1)).is_ready
    assert (await watch.after(1)).is_ready
    watch.handlers.failing = {3}
    assert (await watch.after(1)).is_ready
    assert not (await watch.after(1)).is_ready

    assert set(watch.events) == {("Warning", "Unhealthy", "Readiness probe failed: failing")}


async def test_a_failed_liveness_probe_is_not_tried_again(watch: Watch) -> None:
    watch.handlers.failing = {2}
    await watch.attend(**probe("livenessProbe", periodSeconds=10))

    assert not (await watch.after(19)).unfit
    assert (await watch.after(1)).unfit == "liveness probe"
    await watch.after(60)
    assert watch.times(2) == [0, 10, 20]


async def test_other_probes_wait_for_the_startup_probe(watch: Watch) -> None:
    watch.handlers.failing = {1}
    kinds = ("startupProbe", "livenessProbe", "readinessProbe")
    await watch.attend(**{name: probes for kind in kinds for name, probes in probe(kind, periodSeconds=1).items()})

    await watch.after(1)
    assert watch.fitness == ProbeStatus(is_up=False, is_ready=False)
    assert watch.times(2) == watch.times(3) == []
    watch.handlers.failing = set()
    assert await watch.after(1) == ProbeStatus()
    assert watch.times(1) == [0, 1, 2]
    assert watch.times(2)[0] == watch.times(3)[0] == 2


async def test_a_container_fails_its_startup_probe_at_the_threshold(watch: Watch) -> None:
    watch.handlers.failing = {1}
    await watch.attend(**probe("startupProbe", periodSeconds=1, failureThreshold=30))

    assert not (await watch.after(28)).unfit
    assert (await watch.after(1)).unfit == "startup probe"


async def test_probes_wait_for_the_post_start_hook(watch: Watch) -> None:
    await watch.attend(lifecycle={"postStart": {"sleep": {"seconds": 5}}}, **probe("readinessProbe"))

    assert await watch.after(4) == ProbeStatus(is_hooked=False, is_ready=False)
    assert await watch.after(1) == ProbeStatus()
    assert watch.times(3) == [5]


async def test_a_failed_post_start_hook_is_reported_without_its_output(watch: Watch) -> None:
    watch.handlers.hook_fails = True
    await watch.attend(lifecycle={"postStart": {"sleep": {"seconds": 5}}})

    assert watch.fitness.unfit == "FailedPostStartHook"
    assert watch.events == [("Warning", "FailedPostStartHook", "PostStartHook failed")]


async def test_stored_results_are_not_probed_again(watch: Watch) -> None:
    """A restarted kubelet takes over a ready container, which stays ready until a probe fails."""
    watch.handlers.failing = {1, 3}
    probes = {**probe("startupProbe"), **probe("readinessProbe", periodSeconds=1)}
    await watch.attend(ProbeStatus(), lifecycle={"postStart": {"sleep": {"seconds": 99}}}, **probes)

    assert watch.fitness == ProbeStatus()
    assert watch.times(1) == []
    assert (await watch.after(1)).is_ready
    assert not (await watch.after(1)).is_ready


async def test_a_stopping_pod_is_probed_for_readiness_only(watch: Watch) -> None:
    probes = {**probe("livenessProbe", periodSeconds=1), **probe("readinessProbe", periodSeconds=1)}
    await watch.attend(**probes)
    await watch.after(1)

    watch.attendant.stop_liveness()
    watch.handlers.failing = {2, 3}

    assert await watch.after(5) == ProbeStatus(is_ready=False)


async def test_a_failed_hook_is_not_run_again_by_another_kubelet(watch: Watch) -> None:
    await watch.attend(
        ProbeStatus(is_hooked=False, unfit=FAILED_POST_START_HOOK), lifecycle={"postStart": {"sleep": {"seconds": 1}}}
    )

    assert (await watch.after(2)) == ProbeStatus(is_hooked=False, unfit=FAILED_POST_START_HOOK)


async def test_a_clock_set_back_does_not_prolong_the_initial_delay(watch: Watch) -> None:
    await watch.attend(began=3600, **probe("livenessProbe", initialDelaySeconds=5, periodSeconds=2))
    await watch.after(6)

    assert watch.times(2) == [5]


async def test_an_unexpected_error_does_not_end_probing(watch: Watch) -> None:
    watch.handlers.is_broken = True
    await watch.attend(**probe("readinessProbe", periodSeconds=2), **probe("livenessProbe", periodSeconds=2))
    watch.handlers.is_broken = False

    assert (await watch.after(RESTART_SECONDS)).is_ready
    assert watch.times(3) == [0, RESTART_SECONDS]
