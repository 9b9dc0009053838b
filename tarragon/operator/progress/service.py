"""Keeps reports of progress served for as long as the operator runs, and says where, for the pods of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.port import Client
from tarragon.operator.progress.receiver import ProgressReceiver
from tarragon.operator.progress.server import ProgressOptions, ProgressServer
from tarragon.plan.objects.progress import ProgressEndpoint

RETRY_SECONDS = 60.0
RENEWAL_CHECK_SECONDS = 3600.0
"""How often the certificate is looked at: it may be about to end, or another authority may have been made."""

log = structlog.get_logger(__name__)


class ProgressService:
    """Serves while `run` is running. Jobs run without it, so nothing that goes wrong here ends the operator."""

    def __init__(
        self,
        cluster: Client,
        clock: Clock,
        receiver: ProgressReceiver,
        options: ProgressOptions,
        announce: Callable[[ProgressEndpoint], None],
    ) -> None:
        """`announce` is given the endpoint when it is served, and when its authority changes."""
        self._cluster = cluster
        self._clock = clock
        self._receiver = receiver
        self._options = options
        self._announce = announce
        self._was_tried = asyncio.Event()

    async def first_attempt(self) -> None:
        """Wait until reports are served, or could not be served yet: pods that are created earlier can't report."""
        await self._was_tried.wait()

    async def run(self) -> None:
        """Serve, and write what reports say, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receiver.writer.run())
            while True:
                try:
                    await self._serve()
                except ApiError as error:
                    log.warning(
                        "reports of progress can't be received; jobs run without. Install the Service, the Secret and "
                        "the role for them (`tarragon docs install`), or remove --progress-listen",
                        error=str(error),
                    )
                except OSError as error:
                    log.warning("reports of progress can't be received; jobs run without", error=str(error))
                self._was_tried.set()
                await self._clock.sleep(RETRY_SECONDS)

    async def _serve(self) -> None:
        """Serve until cancelled. Raises OSError and ApiError."""
        server = ProgressServer(self._receiver, self._options, self._clock)
        certificate = await self._options.certificate(self._cluster, self._clock.now())
        server.use_certificate(certificate)
        url = server.start()
        log.info("receiving reports of progress", url=url)
        try:
            while True:
                self._announce(ProgressEndpoint(url=url, authority=certificate.authority))
                self._was_tried.set()
                await self._clock.sleep(RENEWAL_CHECK_SECONDS)
                try:
                    certificate = await self._options.certificate(self._cluster, self._clock.now())
                    server.use_certificate(certificate)
                except (ApiError, OSError) as error:
                    log.warning("the certificate of the reports could not be checked", error=str(error))
        finally:
            await server.stop()
