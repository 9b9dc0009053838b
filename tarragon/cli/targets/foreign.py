"""A cluster from a kubeconfig as a Target. Its errors name the cluster and a remedy."""

from __future__ import annotations

import random
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NotInstalled
from tarragon.cli.jobview.target import Looker, Note, Prompt
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.invocation import here
from tarragon.cli.targets.refusals import worded
from tarragon.client.errors import ApiError, NotFound, Unavailable
from tarragon.client.http.client import Http
from tarragon.client.http.connection import Access
from tarragon.client.http.user_agent import user_agent

if TYPE_CHECKING:
    from tarragon.cli.jobview.follower import Follower

PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reconnect; the last value repeats."""


def foreign(settings: Settings, environment: Mapping[str, str]) -> Foreign:
    """Returns the cluster that the settings name. Raises TarragonError if the context does not exist."""
    from tarragon.client.http import connection as access

    path = Path(settings.kubeconfig).expanduser() if settings.kubeconfig else None
    if settings.context or path is not None:
        found = access.kubeconfig(environment, path=path, context=settings.context)
    else:
        found = access.here(environment)
    return Foreign(found, settings)


class Foreign:
    """A kubeconfig's context, or the cluster in which this process runs, as a Target."""

    def __init__(self, access: Access, settings: Settings) -> None:
        self.access = access
        self._settings = settings

    @property
    def namespace(self) -> str:
        return self._settings.given_namespace or self.access.namespace or "default"

    @property
    def name(self) -> str:
        return f"context {self.access.context} ({self.access.server.url})"

    @property
    def is_local(self) -> bool:
        return False

    @property
    def nodes(self) -> Path | None:
        return None

    @property
    def prompt(self) -> Prompt:
        given = (("--kubeconfig", self._settings.kubeconfig), ("--context", self._settings.context))
        words = [here(), *(f"{flag} {shlex.quote(value)}" for flag, value in given if value)]
        return Prompt(" ".join(words), self.access.namespace or "default")

    @asynccontextmanager
    async def changing(self, clock: Clock) -> AsyncIterator[Http]:  # noqa: ARG002 - nothing has to be started
        async with self._connection() as http:
            yield http

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Looker]:
        async with self._connection() as http:
            yield http

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Http]:
        async with self._connection() as http:
            yield http

    async def follow(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Follows the job, and reconnects when the cluster answers again: meanwhile the job continues."""
        while True:
            try:
                with self._translated_errors():
                    async with self.client() as http:
                        await follower.follow(http)
            except Lost:
                await self._wait_until_it_answers(follower, clock, note)
            else:
                return

    def client(self) -> Http:
        return Http(replace(self.access.server, user_agent=user_agent("cli")), random.Random())

    def words(self, error: TarragonError) -> TarragonError:
        """Returns the error as a message about this cluster."""
        if not isinstance(error, Unavailable):
            return worded(error, self.name, self.prompt)
        if "certificate" in error.what:
            return TarragonError(
                f"the certificate of {self.name} can't be verified",
                why=error.what,
                remedy="ask its administrator for the current certificate-authority, and set it in the kubeconfig",
            )
        return Lost(
            f"{self.name} does not answer",
            why=error.what,
            remedy="check that it is running and reachable from this machine (VPN, proxy, firewall)",
        )

    async def _wait_until_it_answers(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Returns when the cluster answers again. Prints once that it does not."""
        job, attempts = follower.job, 0
        while True:
            await clock.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
            try:
                with self._translated_errors():
                    async with self.client() as http:
                        with suppress(NotFound):
                            await http.get(job.framework.resource, job.key)
            except Lost as error:
                if not attempts:
                    note(f"{self.name} does not answer ({error.why}); retrying.")
                attempts += 1
                continue
            if attempts:
                note(f"{self.name} answers again.")
            return

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Http]:
        with self._translated_errors():
            async with self.client() as http:
                yield http

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translates API errors into messages about this cluster."""
        try:
            yield
        except (ApiError, NotInstalled) as error:
            raise self.words(error) from error


class Lost(TarragonError):
    """The cluster did not answer, or answered with a server error: a later attempt may succeed."""
