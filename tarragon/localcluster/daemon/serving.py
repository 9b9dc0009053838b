"""The server process of a home: it locks the home, announces itself to clients, and stops on a signal or when idle."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from tarragon import __version__
from tarragon.base.clock import Clock
from tarragon.localcluster.daemon import kubeconfig
from tarragon.localcluster.daemon.background import STOP_PODS_SIGNAL
from tarragon.localcluster.daemon.cluster import BackgroundCoroutine, LocalCluster, LocalClusterSettings
from tarragon.localcluster.daemon.log_rotation import rotate_for_ever
from tarragon.localcluster.home.home import Home, unusable_home_error
from tarragon.localcluster.home.lock import HomeLock, ServerInfo, lock_home, process_start, write_server
from tarragon.localcluster.kubelet.images.images import current_environment

_LOST_HOME_SECONDS = 5.0
"""Time to stop pods whose folders were removed. Their exit status can't be recorded, but their shims stop them."""

_IDLE_CHECKS = 10
"""How often activity is checked during the idle timeout."""

log = structlog.get_logger(__name__)


class Activity(Protocol):
    """The activity of a cluster, which is polled."""

    async def is_busy(self) -> bool:
        """Whether a pod runs, a client reads a stream, or a cron job is scheduled at this moment."""
        ...

    def last_request(self) -> float:
        """The monotonic time of the last request of a client."""
        ...


class Announcement(Protocol):
    """What tells clients where the server is."""

    def publish(self) -> None:
        """From now on clients find the server."""
        ...

    def withdraw(self) -> None:
        """From now on clients find no server, and start one."""
        ...


async def serve(
    settings: LocalClusterSettings,
    clock: Clock,
    companions: Sequence[BackgroundCoroutine] = (),
    ready: Callable[[ServerInfo], None] = lambda _: None,
) -> None:
    """Serve until a signal or the idle timeout. SIGTERM, SIGINT and SIGHUP leave the pods running, STOP_PODS_SIGNAL
    and the idle timeout stop them.

    `ready` is called once clients can connect. Raises TarragonError if the home is in use or can't be used, the store
    can't be opened, or the port is taken.
    """
    home = settings.home
    home.prepare()
    faulthandler.enable()
    # The working directory may be deleted or unmounted while the server runs, so it changes to the home.
    settings = replace(settings, kubeconfig=settings.kubeconfig and settings.kubeconfig.absolute())
    os.chdir(home.folder)
    _allow_many_files()
    with _stop_signal() as stop_signal:
        async with lock_home(home, clock) as hold:
            cluster = await _start_unless_stopped(stop_signal, LocalCluster.start(settings, clock))
            if cluster is None:
                return
            try:
                server = _announce(settings, cluster, clock)
                ready(server)
                _tune_garbage_collection()
                cluster.run_companions(companions)  # they may take their time until they run
                conditions = _StopConditions(stop_signal, hold)
                await _until_the_end(settings, cluster, clock, conditions, _ServerFile(home, server))
            finally:
                home.server.unlink(missing_ok=True)
                await cluster.stop()


@dataclass(frozen=True, slots=True)
class _StopConditions:
    """The reasons to stop besides idleness: a signal, or a home that was removed or replaced."""

    stop_signal: asyncio.Future[int]
    hold: HomeLock


@dataclass(frozen=True, slots=True)
class _ServerFile:
    """The announcement of a server in its home."""

    home: Home
    server: ServerInfo

    def publish(self) -> None:
        write_server(self.home, self.server)

    def withdraw(self) -> None:
        self.home.server.unlink(missing_ok=True)


async def _start_unless_stopped(
    stop_signal: asyncio.Future[int], starting: Coroutine[Any, Any, LocalCluster]
) -> LocalCluster | None:
    """The started cluster, or None if a signal came before the start was complete."""
    task = asyncio.create_task(starting)
    waiting: set[asyncio.Future[Any]] = {task, stop_signal}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def _until_the_end(
    settings: LocalClusterSettings,
    cluster: LocalCluster,
    clock: Clock,
    conditions: _StopConditions,
    announcement: Announcement,
) -> None:
    """Wait for a reason to stop, and stop the pods if the reason requires it."""
    log_keeper = asyncio.create_task(rotate_for_ever(settings.home.log, clock))
    lost = asyncio.create_task(conditions.hold.until_lost(clock))
    waiting: set[asyncio.Future[Any]] = {conditions.stop_signal, lost}
    if settings.idle_seconds is not None:
        waiting.add(asyncio.create_task(until_unused(cluster, clock, settings.idle_seconds, announcement)))
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    tasks = [log_keeper, *(task for task in waiting if isinstance(task, asyncio.Task))]
    was_lost = lost.done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if was_lost:
        log.error("the home was removed, so the server and its pods stop", home=str(settings.home.folder))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOST_HOME_SECONDS):
                await cluster.stop_pods()
    elif conditions.stop_signal.done() and conditions.stop_signal.result() == STOP_PODS_SIGNAL:
        log.info("stopping, with all pods: `tarragon down` asked for it")
        announcement.withdraw()  # no new clients while the pods stop
        await cluster.stop_pods()
    elif conditions.stop_signal.done():
        log.info("stopping on a signal", signal=signal.Signals(conditions.stop_signal.result()).name)
    else:
        log.info("stopping after the idle timeout", seconds=settings.idle_seconds)
        await cluster.stop_pods()


async def until_unused(activity: Activity, clock: Clock, seconds: float, announcement: Announcement) -> None:
    """Return when the cluster has been idle for the given time and its announcement is withdrawn.

    A client may have found the server just before. If its request comes now, the server stays, and is announced again.
    """
    while True:
        await until_idle(activity, clock, seconds)
        withdrawn_at = clock.monotonic()
        announcement.withdraw()
        if not await activity.is_busy() and activity.last_request() < withdrawn_at:
            return
        announcement.publish()


async def until_idle(activity: Activity, clock: Clock, seconds: float) -> None:
    """Return when the cluster has been idle for the given time."""
    idle_since = clock.monotonic()
    while clock.monotonic() - idle_since < seconds:
        await clock.sleep(seconds / _IDLE_CHECKS)
        if await activity.is_busy():
            idle_since = clock.monotonic()
        # After the await: the job of a request that comes meanwhile has neither a pod nor a stream yet.
        idle_since = max(idle_since, activity.last_request())


def _announce(settings: LocalClusterSettings, cluster: LocalCluster, clock: Clock) -> ServerInfo:
    """Write the files by which clients find the server and authenticate."""
    home, pid = settings.home, os.getpid()
    server = ServerInfo(
        url=cluster.url,
        pid=pid,
        process_start=process_start(pid),
        started=clock.now(),
        version=__version__,
        environment=str(current_environment().folder),
    )
    config = kubeconfig.kubeconfig(cluster.url, home.ca.read_bytes(), home.read_token())
    try:
        kubeconfig.write(home.kubeconfig, config)
        if settings.kubeconfig is not None:
            kubeconfig.write(settings.kubeconfig, config)
        write_server(home, server)
    except OSError as error:
        raise unusable_home_error(home.folder, error) from error
    return server


@contextlib.contextmanager
def _stop_signal() -> Iterator[asyncio.Future[int]]:
    """A future that is done with the first signal to stop; later signals are ignored."""
    loop = asyncio.get_running_loop()
    stop_signal: asyncio.Future[int] = loop.create_future()

    def on_signal(number: int) -> None:
        if not stop_signal.done():
            stop_signal.set_result(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, STOP_PODS_SIGNAL)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop_signal
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _tune_garbage_collection() -> None:
    """Exclude objects of the start-up, which are never garbage, from collections, and collect less often."""
    gc.freeze()
    gc.enable()  # the caller may have disabled it during the start
    gc.set_threshold(50_000, 20, 50)


def _allow_many_files() -> None:
    """Raise the soft limit of open files: 1,024 are soon reached with one per running container and one per client."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
