"""A cluster that a kubeconfig names, as a target: its doors, and its refusals in words that name it and a remedy."""

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
"""Seconds between attempts to reach it again; the last one again and again."""


def foreign(settings: Settings, environment: Mapping[str, str]) -> Foreign:
    """Raises TarragonError when there is no such context."""
    from tarragon.client.http import connection as access

    path = Path(settings.kubeconfig).expanduser() if settings.kubeconfig else None
    if settings.context or path is not None:
        found = access.kubeconfig(environment, path=path, context=settings.context)
    else:
        found = access.here(environment)
    return Foreign(found, settings)


class Foreign:
    """The Target of a kubeconfig's context, or of the cluster that we run in."""

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
        async with self._door() as http:
            yield http

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Looker]:
        async with self._door() as http:
            yield http

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Http]:
        async with self._door() as http:
            yield http

    async def follow(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Whoever loses the connection comes back: the job goes on without us, and so do we when it answers again."""
        while True:
            try:
                with self._told():
                    async with self.client() as http:
                        await follower.follow(http)
            except Lost:
                await self._answers(follower, clock, note)
            else:
                return

    def client(self) -> Http:
        return Http(replace(self.access.server, user_agent=user_agent("cli")), random.Random())

    def words(self, error: TarragonError) -> TarragonError:
        """What it means at a prompt."""
        if not isinstance(error, Unavailable):
            return worded(error, self.name, self.prompt)
        if "certificate" in error.what:
            return TarragonError(
                f"{self.name} is not the server that the kubeconfig means, or its certificate was renewed",
                why=error.what,
                remedy="ask whoever runs it for its present certificate-authority, and put that into the kubeconfig",
            )
        return Lost(
            f"{self.name} does not answer",
            why=error.what,
            remedy="is it up, and can this machine reach it (VPN, proxy, firewall)?",
        )

    async def _answers(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Return when it does; that it does not is said once."""
        job, attempts = follower.job, 0
        while True:
            await clock.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
            try:
                with self._told():
                    async with self.client() as http:
                        with suppress(NotFound):
                            await http.get(job.framework.resource, job.key)
            except Lost as error:
                if not attempts:
                    note(f"{self.name} does not answer ({error.why}); trying again until it does.")
                attempts += 1
                continue
            if attempts:
                note(f"{self.name} answers again.")
            return

    @asynccontextmanager
    async def _door(self) -> AsyncIterator[Http]:
        with self._told():
            async with self.client() as http:
                yield http

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Refusals that nobody inside has met are told as this cluster's, with what to do."""
        try:
            yield
        except (ApiError, NotInstalled) as error:
            raise self.words(error) from error


class Lost(TarragonError):
    """No answer came, or one that the server itself takes for a failure: it may be well in a moment."""
