"""The operator process: warm caches on standby, leader election, health endpoints, and a clean shutdown.

Losing the lease ends the process, because its state may be stale; a new process starts from fresh caches.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
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
from tarragon.base.clock import Clock, with_timeout
from tarragon.client.errors import ApiError
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.leader_election import LeaderElector, LeaseLost, is_missing_namespace
from tarragon.client.middleware.fenced import FencedClient
from tarragon.client.middleware.instrumented import InstrumentedClient
from tarragon.client.port import Client
from tarragon.operator.coexistence.watcher import CoexistenceWatcher
from tarragon.operator.manager.health import HttpResponse, Routes, probe_response, serving
from tarragon.operator.manager.operator import Operator
from tarragon.operator.manager.own_image import read_own_image
from tarragon.operator.manager.settings import ProcessSettings
from tarragon.operator.metrics.registry import CONTENT_TYPE, Metrics
from tarragon.operator.scheduler.config.reload import ReloadingRules

NOT_READY_LOG_SECONDS = 30.0
"""How often a process that is not ready logs what it waits for."""

MAX_EXIT_SECONDS = 20.0
"""Seconds within which a process that has lost its lease must exit."""

SIGNAL_EXIT_BASE = 128
"""Base of the exit codes for signals, as in shells."""

CREATE_NAMESPACE = (
    "create that namespace, or name the one of the other operators: --lease-namespace, or the variable "
    "KUBEFLOW_NAMESPACE or MY_POD_NAMESPACE"
)
ALLOW_LEASE = "install its permissions again (`tarragon docs install#install`), or name another --lease-namespace"

NO_ROUTES: Routes = MappingProxyType({})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterClients:
    """Clients of one cluster: lease renewals must not wait behind thousands of writes for a connection."""

    operator: Client
    leader_election: Client
    progress: Client | None = None
    """Reviews tokens and writes what programs report, also on a standby; None for that of the operator."""


class Process:
    """Runs the operator with leader election and health endpoints until it is asked to stop."""

    def __init__(self, clients: ClusterClients, clock: Clock, settings: ProcessSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._is_stopping = False
        self.lease: LeaderElector | None = None
        self._client = cluster = clients.operator
        if settings.lease_claim is not None:
            jitter = random.Random(settings.options.seed)
            self.lease = LeaderElector(clients.leader_election, clock, settings.lease_claim, jitter)
            self.lease.on_error(lambda error: log.warning("lease request failed", trouble=str(error)))
            self.lease.on_refusal(self._log_refusal)
            self.lease.on_new_leader(self._holder_changed)
            cluster = FencedClient(cluster, self.lease)
        self._operator = Operator(cluster, clock, settings.options)
        # Not the fenced client: a standby takes reports, too.
        self._progress = self._operator.progress_service(clients.progress or clients.operator)
        self._coexistence = CoexistenceWatcher(clients.operator, clock, self._on_other_operators)

    @property
    def routes(self) -> Routes:
        """The process's HTTP routes."""
        return MappingProxyType({"/healthz": self._healthz, "/livez": self._healthz, "/readyz": self._readyz})

    @property
    def restart_reasons(self) -> Sequence[str]:
        """Reasons to restart this process, for the liveness probe."""
        reasons = list(self._operator.restart_reasons)
        if self.lease is not None and -MAX_EXIT_SECONDS > self.lease.seconds_left > -math.inf:
            reasons.append(f"the lease was lost {-self.lease.seconds_left:.0f} s ago, but the process has not exited")
        return reasons

    async def run(self, stopping: asyncio.Event, more: Routes = NO_ROUTES) -> None:
        """Run until `stopping` is set; `more` are additional routes. Raises LeaseLost, alone or in a group."""
        async with self._serving({**self.routes, **more}), asyncio.TaskGroup() as tasks:
            follow = tasks.create_task(self._operator.run_caches())
            operator = tasks.create_task(self._run_operator())
            progress = tasks.create_task(self._serve_progress())
            missing_log = tasks.create_task(self._log_missing())
            await stopping.wait()
            self._is_stopping = True
            missing_log.cancel()
            progress.cancel()
            await self._shut_down(operator)
            follow.cancel()

    async def _run_operator(self) -> None:
        await self._operator.wait_for_sync()
        await self._find_own_image()
        gc.freeze()
        if self.lease is None:
            log.info("leading", lease="none")
            await self._lead()
            return
        log.info("caches synced, standing by", identity=self.lease.identity)
        await self.lease.acquire()
        async with asyncio.TaskGroup() as tasks:
            renewal = tasks.create_task(self.lease.renew())
            log.info("leading", identity=self.lease.identity)
            await self._lead()
            renewal.cancel()

    async def _serve_progress(self) -> None:
        await self._operator.wait_for_sync()
        if self._progress is not None:
            await self._progress.run()

    async def _find_own_image(self) -> None:
        if self._settings.own_pod is None:
            return
        image = await read_own_image(self._client, self._clock, self._settings.own_pod)
        if image is not None:
            log.info("own image", image=image.name)
            self._operator.use_own_image(image)

    async def _lead(self) -> None:
        await self._coexistence.first_check()
        if self._progress is not None:
            await self._progress.first_attempt()
        async with asyncio.TaskGroup() as tasks:
            coexistence = tasks.create_task(self._coexistence.run())
            await self._operator.lead()
            coexistence.cancel()

    def _on_other_operators(self, left_to: Mapping[str, str]) -> None:
        if self._settings.adopt:
            log.warning("another operator is running; its jobs are managed here as well because of --adopt", **left_to)
            return
        if left_to:
            log.warning("another operator is running: jobs of its kinds are left to it unless already ours", **left_to)
        else:
            log.info("no other operator is running any more: all jobs are managed here")
        self._operator.leave_kinds_to(left_to)

    async def _shut_down(self, operator: asyncio.Task[None]) -> None:
        """Finish the writes in progress, then release the lease."""
        self._operator.stop()
        if self._operator.is_leading:
            log.info("stopping: finishing the writes in progress")
            try:
                await with_timeout(self._clock, self._settings.shutdown_seconds, asyncio.shield(operator))
            except TimeoutError:
                log.warning("stopping: the last writes did not finish in time", seconds=self._settings.shutdown_seconds)
        operator.cancel()
        await asyncio.wait((operator,))
        if self.lease is not None:
            await self.lease.release()
        log.info("stopped")

    async def _log_missing(self) -> None:
        while True:
            await self._clock.sleep(NOT_READY_LOG_SECONDS)
            if self._operator.unsynced_kinds:
                log.warning("not ready: waiting for the first list", kinds=list(self._operator.unsynced_kinds))
            elif self.lease is not None and self.lease.refusal is not None:
                self._log_refusal(self.lease.refusal)

    @asynccontextmanager
    async def _serving(self, routes: Routes) -> AsyncIterator[None]:
        if self._settings.listen is None:
            yield
            return
        async with serving(self._settings.listen, routes) as address:
            log.info("listening", host=address.host or "all interfaces", port=address.port)
            yield

    def _log_refusal(self, refusal: ApiError) -> None:
        is_missing = is_missing_namespace(refusal)
        log.error(
            "cannot lead: the namespace of the Lease does not exist"
            if is_missing
            else "cannot lead: the Lease is forbidden",
            lease=str(self.lease.key) if self.lease is not None else "",
            why=str(refusal),
            remedy=CREATE_NAMESPACE if is_missing else ALLOW_LEASE,
        )

    def _holder_changed(self, holder: str) -> None:
        log.info("lease holder changed", holder=holder or "none")

    def _healthz(self) -> HttpResponse:
        return probe_response(self.restart_reasons, 500)

    def _readyz(self) -> HttpResponse:
        faults = [f"{kind}: not listed yet" for kind in self._operator.unsynced_kinds]
        if self._is_stopping:
            faults.append("stopping")
        if not faults and self.lease is not None:
            # A server that does not respond is no fault of this process: a standby that was ready stays ready.
            if self.lease.refusal is not None:
                faults.append(f"cannot lead: {self.lease.refusal}")
            elif not self.lease.is_answered:
                faults.append(f"the Lease {self.lease.key} has not been read yet")
        return probe_response(faults, 503)


async def serve(server: RestConfig, clock: Clock, settings: ProcessSettings) -> bool:
    """Run the operator with metrics until SIGTERM or SIGINT. Returns False if it ended because the lease was lost."""
    # Full caches are about a million long-lived objects, so the garbage collector runs less often than by default.
    # The objects of the initial sync are exempt altogether (`gc.freeze`).
    gc.set_threshold(50_000, 20, 50)
    jitter = random.Random(settings.options.seed)
    metrics = Metrics(clock, __version__)
    if isinstance(settings.options.rules, ReloadingRules):
        settings.options.rules.on_edit(metrics.queues_file_checked)
    _log_settings(server, settings)
    try:
        async with (
            HttpClient(server, jitter) as cluster,
            HttpClient(server, jitter) as election,
            HttpClient(server, jitter) as progress,
        ):
            for client in (cluster, election, progress):
                client.on_warning(_log_server_warning)
            clients = ClusterClients(
                operator=InstrumentedClient(cluster, clock, metrics),
                leader_election=InstrumentedClient(election, clock, metrics),
                progress=InstrumentedClient(progress, clock, metrics),
            )
            process = Process(clients, clock, replace(settings, options=replace(settings.options, meter=metrics)))
            if process.lease is not None:
                cluster.check_before_writes(process.lease.check)
            with stop_on_signal() as stopping:
                await process.run(stopping, {"/metrics": lambda: HttpResponse(200, metrics.render(), CONTENT_TYPE)})
    except* LeaseLost as lost:
        log.error("stopped: the lease is lost", reason=str(_cause(lost)))  # noqa: TRY400 - no bug, no traceback
        is_lost = True
    else:
        is_lost = False
    return not is_lost


def _log_server_warning(text: str) -> None:
    log.warning("the API server warns", warning=text)


def _log_settings(server: RestConfig, settings: ProcessSettings) -> None:
    """Log the settings that people look for first."""
    plan = settings.options.settings
    log.info(
        "starting",
        version=__version__,
        server=server.url,
        namespaces=list(plan.namespaces) or "all",
        placement=str(plan.placement),
        lease=str(settings.lease_claim.key) if settings.lease_claim is not None else "none",
    )


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def stop_on_signal() -> Iterator[asyncio.Event]:
    """Yields an event that the first SIGTERM or SIGINT sets; the second one exits at once."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    # A counter that reads and increments in one step: the second signal may arrive while the first is being handled.
    earlier_signals = itertools.count()

    def stop_or_exit(number: int, _: FrameType | None) -> None:
        if next(earlier_signals):
            # Not the default action: the kernel ignores it for PID 1 of a container.
            os._exit(SIGNAL_EXIT_BASE + number)
        loop.call_soon_threadsafe(stopping.set)

    # Not loop.add_signal_handler: a stuck loop would never handle the second signal.
    previous_handlers = {number: signal.signal(number, stop_or_exit) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for each, handler in previous_handlers.items():
            signal.signal(each, handler)
