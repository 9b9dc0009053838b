"""The operator as a process: caches warm while it stands by, decisions while it leads, a clean end.

Losing the lease ends the process: what it believed may be past, and a new one knows nothing that is not so.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from types import FrameType, MappingProxyType

import structlog

from tarragon import __version__
from tarragon.base.clock import Clock, within
from tarragon.client.http.client import Http
from tarragon.client.http.transport import Server
from tarragon.client.leader_election import Lease, LeaseLost
from tarragon.client.middleware.counted import Counted
from tarragon.client.middleware.fenced import Fenced
from tarragon.client.port import Cluster
from tarragon.kube.meta import Json
from tarragon.operator.coexistence.watcher import Lookout
from tarragon.operator.manager.health import Answer, Routes, serving, verdict
from tarragon.operator.manager.operator import Operator
from tarragon.operator.manager.settings import ProcessSettings
from tarragon.operator.metrics.registry import CONTENT_TYPE, Metrics
from tarragon.operator.scheduler.config.reload import RulesInFile

WAITING_SECONDS = 30.0
"""How often a process that can't begin says what it waits for."""

LONGEST_END = 20.0
"""Seconds in which a process that has lost its lease must have ended."""

SIGNALLED = 128
"""Exit codes above it name a signal, as shells have it."""

NO_ROUTES: Routes = MappingProxyType({})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Two ways to one cluster: thousands of writes that queue for a connection must not hold up a renewal."""

    cluster: Cluster
    election: Cluster


class Process:
    """`run` until told to stop; whoever measures it answers on routes of its own."""

    def __init__(self, doors: Doors, clock: Clock, settings: ProcessSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._is_stopping = False
        self.lease: Lease | None = None
        cluster = doors.cluster
        if settings.claim is not None:
            jitter = random.Random(settings.options.seed)
            self.lease = Lease(doors.election, clock, settings.claim, jitter)
            self.lease.on_trouble(lambda error: log.warning("lease", trouble=str(error)))
            self.lease.on_holder(self._holder_changed)
            cluster = Fenced(cluster, self.lease)
        self._operator = Operator(cluster, clock, settings.options)
        self._lookout = Lookout(doors.cluster, clock, self._others_seen)

    @property
    def routes(self) -> Routes:
        """What it answers over HTTP."""
        return MappingProxyType({"/healthz": self._healthz, "/livez": self._healthz, "/readyz": self._readyz})

    @property
    def stuck(self) -> Sequence[str]:
        """Reasons to kill this process."""
        found = list(self._operator.stuck)
        if self.lease is not None and -LONGEST_END > self.lease.seconds_left > -math.inf:
            found.append(f"the lease was lost {-self.lease.seconds_left:.0f} s ago, and it has not ended yet")
        return found

    async def run(self, stopping: asyncio.Event, more: Routes = NO_ROUTES) -> None:
        """Raises LeaseLost, alone or in a group, when another one leads."""
        async with self._listening({**self.routes, **more}), asyncio.TaskGroup() as tasks:
            follow = tasks.create_task(self._operator.follow())
            life = tasks.create_task(self._live())
            waits = tasks.create_task(self._say_what_is_missing())
            await stopping.wait()
            self._is_stopping = True
            waits.cancel()
            await self._end(life)
            follow.cancel()

    async def _live(self) -> None:
        await self._operator.synced()
        gc.freeze()
        if self.lease is None:
            log.info("leading", lease="none")
            await self._lead()
            return
        log.info("ready, standing by", identity=self.lease.identity)
        await self.lease.acquire()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self.lease.keep())
            log.info("leading", identity=self.lease.identity)
            await self._lead()
            keeping.cancel()

    async def _lead(self) -> None:
        await self._lookout.first()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._lookout.run())
            await self._operator.lead()
            looking.cancel()

    def _others_seen(self, left_to: Mapping[str, str]) -> None:
        if self._settings.adopt:
            log.warning("another operator is at work, and its jobs are kept by us, too, as --adopt says", **left_to)
            return
        if left_to:
            log.warning("another operator is at work: jobs of its kinds that are not ours are left to it", **left_to)
        else:
            log.info("no other operator is at work any more: all jobs are ours")
        self._operator.leave(left_to)

    async def _end(self, life: asyncio.Task[None]) -> None:
        """Finish what is being written, then let the next one begin."""
        self._operator.stop()
        if self._operator.is_leading:
            log.info("ending: finishing what is being written")
            try:
                await within(self._clock, self._settings.grace, asyncio.shield(life))
            except TimeoutError:
                log.warning("ending: the last writes did not come to an end", seconds=self._settings.grace)
        life.cancel()
        await asyncio.wait((life,))
        if self.lease is not None:
            await self.lease.release()
        log.info("ended")

    async def _say_what_is_missing(self) -> None:
        while True:
            await self._clock.sleep(WAITING_SECONDS)
            if self._operator.missing:
                log.warning("not ready: waiting for the first list", kinds=list(self._operator.missing))

    @asynccontextmanager
    async def _listening(self, routes: Routes) -> AsyncIterator[None]:
        if self._settings.listen is None:
            yield
            return
        async with serving(self._settings.listen, routes) as address:
            log.info("listening", host=address.host or "all interfaces", port=address.port)
            yield

    def _holder_changed(self, holder: str) -> None:
        log.info("lease", holder=holder or "nobody")

    def _healthz(self) -> Answer:
        return verdict(self.stuck, 500)

    def _readyz(self) -> Answer:
        faults = [f"{kind}: not listed yet" for kind in self._operator.missing]
        if self._is_stopping:
            faults.append("ending")
        return verdict(faults, 503)


async def serve(server: Server, clock: Clock, settings: ProcessSettings) -> bool:
    """Run it against that API server, measured, until SIGTERM or SIGINT. False when it ended as its lease was lost."""
    # Full caches are a million objects that stay: looking through them as often as is usual costs more than it finds.
    # Those that are there when they have been filled are not looked through at all.
    gc.set_threshold(50_000, 20, 50)
    dice = random.Random(settings.options.seed)
    metrics = Metrics(clock, __version__)
    if isinstance(settings.options.rules, RulesInFile):
        settings.options.rules.on_edit(metrics.queues_refused)
    _say_how(server, settings)
    try:
        async with Http(server, dice) as cluster, Http(server, dice) as election:
            doors = Doors(cluster=Counted(cluster, clock, metrics), election=Counted(election, clock, metrics))
            process = Process(doors, clock, replace(settings, options=replace(settings.options, meter=metrics)))
            if process.lease is not None:
                cluster.guard(process.lease.check)
            with asked_to_end() as stopping:
                await process.run(stopping, {"/metrics": lambda: Answer(200, metrics.text(), CONTENT_TYPE)})
    except* LeaseLost as lost:
        log.error("ended: the lease is lost", reason=str(_cause(lost)))  # noqa: TRY400 - no bug, no traceback
        is_lost = True
    else:
        is_lost = False
    return not is_lost


def _say_how(server: Server, settings: ProcessSettings) -> None:
    """What a person wants to see first in a log."""
    plan = settings.options.settings
    log.info(
        "starting",
        version=__version__,
        server=server.url,
        namespaces=list(plan.namespaces) or "all",
        placement=str(plan.placement),
        lease=str(settings.claim.key) if settings.claim is not None else "none",
    )


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def asked_to_end() -> Iterator[asyncio.Event]:
    """An event that the first signal sets. The second does not ask: whoever sends it has seen the first do nothing."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    before: dict[int, Json] = {}

    def at_once(number: int, _: FrameType | None) -> None:
        os._exit(SIGNALLED + number)

    def asked(*_: object) -> None:
        for each in before:
            # Not the default action, which the first process of a container does not have.
            signal.signal(each, at_once)
        loop.call_soon_threadsafe(stopping.set)

    # Not loop.add_signal_handler: a loop that is stuck would never hear the second one.
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, asked)
    try:
        yield stopping
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
