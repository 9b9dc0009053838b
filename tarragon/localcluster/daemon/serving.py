"""One server for a home, from its start to its end: holds the home, tells clients where it is, ends asked or idle."""

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
from typing import Any

import structlog

from tarragon import __version__
from tarragon.base.clock import Clock
from tarragon.localcluster.daemon import kubeconfig
from tarragon.localcluster.daemon.cluster import Companion, LocalCluster, Settings
from tarragon.localcluster.daemon.daemon import END_PODS
from tarragon.localcluster.daemon.idle import until_idle
from tarragon.localcluster.daemon.logfile import keep_small
from tarragon.localcluster.home.home import unusable
from tarragon.localcluster.home.presence import Hold, Server, birth, occupied, write_server

_PATIENCE_SECONDS = 5.0
"""For pods whose folders are gone: how they end can't be recorded any more. Their shims end them all the same."""

log = structlog.get_logger(__name__)


async def serve(
    settings: Settings,
    clock: Clock,
    companions: Sequence[Companion] = (),
    ready: Callable[[Server], None] = lambda _: None,
) -> None:
    """Serve until a signal or idleness ends it: SIGTERM, SIGINT and SIGHUP leave the pods running, END_PODS ends them.
    `ready` is called once clients can come.

    Raises TarragonError: the home is in use or can't be used, the store can't be opened, the port is taken.
    """
    home = settings.home
    home.prepare()
    faulthandler.enable()
    # The folder where somebody once stood may be deleted or unmounted while we run; the home may not.
    settings = replace(settings, kubeconfig=settings.kubeconfig and settings.kubeconfig.absolute())
    os.chdir(home.folder)
    _allow_many_files()
    with _asked_to_end() as asked:
        async with occupied(home, clock) as hold:
            cluster = await _unless(asked, LocalCluster.start(settings, clock, companions))
            if cluster is None:
                return
            try:
                ready(_announce(settings, cluster, clock))
                _tune_garbage_collection()
                await _until_the_end(settings, cluster, clock, _Reasons(asked, hold))
            finally:
                home.server.unlink(missing_ok=True)
                await cluster.stop()


@dataclass(frozen=True, slots=True)
class _Reasons:
    """Why a server may end, besides idleness: a signal, and a home that was removed or replaced under it."""

    asked: asyncio.Future[int]
    hold: Hold


async def _unless(asked: asyncio.Future[int], starting: Coroutine[Any, Any, LocalCluster]) -> LocalCluster | None:
    """The started cluster, or None when somebody has asked us to end before that."""
    task = asyncio.create_task(starting)
    waiting: set[asyncio.Future[Any]] = {task, asked}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def _until_the_end(settings: Settings, cluster: LocalCluster, clock: Clock, reasons: _Reasons) -> None:
    """Return when there is a reason to end, and what it asks for is done."""
    log_keeper = asyncio.create_task(keep_small(settings.home.log, clock))
    lost = asyncio.create_task(reasons.hold.until_lost(clock))
    waiting: set[asyncio.Future[Any]] = {reasons.asked, lost}
    if settings.idle_seconds is not None:
        waiting.add(asyncio.create_task(until_idle(cluster, clock, settings.idle_seconds)))
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    beside = [log_keeper, *(task for task in waiting if isinstance(task, asyncio.Task))]
    was_lost = lost.done()
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    if was_lost:
        log.error("the home was removed: ends itself and its pods", home=str(settings.home.folder))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await cluster.end_pods()
    elif reasons.asked.done():
        log.info("asked to end", signal=signal.Signals(reasons.asked.result()).name)
        if reasons.asked.result() == END_PODS:
            settings.home.server.unlink(missing_ok=True)  # nobody new is to come while the pods end
            await cluster.end_pods()
    else:
        log.info("nothing to do for a while: ends by itself", seconds=settings.idle_seconds)


def _announce(settings: Settings, cluster: LocalCluster, clock: Clock) -> Server:
    """Tell clients where the server is, and give them what they need to be let in."""
    home, pid = settings.home, os.getpid()
    server = Server(url=cluster.url, pid=pid, born=birth(pid), started=clock.now(), version=__version__)
    config = kubeconfig.kubeconfig(cluster.url, home.ca.read_bytes(), home.read_token())
    try:
        kubeconfig.write(home.kubeconfig, config)
        if settings.kubeconfig is not None:
            kubeconfig.write(settings.kubeconfig, config)
        write_server(home, server)
    except OSError as error:
        raise unusable(home.folder, error) from error
    return server


@contextlib.contextmanager
def _asked_to_end() -> Iterator[asyncio.Future[int]]:
    """Done with the first signal that asks for the end; later ones change nothing."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[int] = loop.create_future()

    def note(number: int) -> None:
        if not asked.done():
            asked.set_result(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_PODS)
    for number in numbers:
        loop.add_signal_handler(number, note, number)
    try:
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _tune_garbage_collection() -> None:
    """Everything that start-up has made stays for good: looking through it again and again costs more than it finds."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _allow_many_files() -> None:
    """One descriptor a container that lives, one a client: the usual soft limit of 1,024 is soon reached."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
