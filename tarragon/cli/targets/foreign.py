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
from tarragon.cli.jobview.target import ClusterReader, CommandPrefix, Notify
from tarragon.cli.options.notes import print_warning
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.invocation import current_invocation
from tarragon.cli.targets.refusals import translate_error
from tarragon.client.errors import ApiError, NotFound, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import ClusterConfig
from tarragon.client.http.transport import RestConfig
from tarragon.client.http.user_agent import user_agent

if TYPE_CHECKING:
    from tarragon.cli.jobview.follower import JobFollower

RECONNECT_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reconnect; the last value repeats."""


def kubeconfig_target(settings: GlobalOptions, environment: Mapping[str, str]) -> KubeconfigTarget:
    """Returns the cluster that the settings name. Raises TarragonError if the context does not exist."""
    from tarragon.client.http import config as access

    path = Path(settings.kubeconfig).expanduser() if settings.kubeconfig else None
    if settings.context or path is not None:
        found = access.load_kubeconfig(environment, path=path, context=settings.context)
    else:
        found = access.load_config(environment)
    return KubeconfigTarget(found, settings)


class KubeconfigTarget:
    """A kubeconfig's context, or the cluster in which this process runs, as a Target."""

    def __init__(self, access: ClusterConfig, settings: GlobalOptions) -> None:
        self.access = access
        self._settings = settings

    @property
    def namespace(self) -> str:
        return self._settings.explicit_namespace or self.access.namespace or "default"

    @property
    def name(self) -> str:
        return f"context {self.access.context} ({self.access.rest_config.url})"

    @property
    def is_local(self) -> bool:
        return False

    @property
    def nodes_folder(self) -> Path | None:
        return None

    @property
    def command_prefix(self) -> CommandPrefix:
        given = (("--kubeconfig", self._settings.kubeconfig), ("--context", self._settings.context))
        words = [current_invocation(), *(f"{flag} {shlex.quote(value)}" for flag, value in given if value)]
        return CommandPrefix(" ".join(words), self.access.namespace or "default")

    @asynccontextmanager
    async def writing(self, clock: Clock) -> AsyncIterator[HttpClient]:  # noqa: ARG002 - nothing has to be started
        async with self._connection() as http:
            yield http

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[ClusterReader]:
        async with self._connection() as http:
            yield http

    @asynccontextmanager
    async def selecting(self) -> AsyncIterator[ClusterReader]:
        async with self._connection() as http:
            yield http

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[HttpClient]:
        async with self._connection() as http:
            yield http

    async def follow(self, follower: JobFollower, clock: Clock, note: Notify) -> None:
        """Follows the job, and reconnects when the cluster answers again: meanwhile the job continues."""
        while True:
            try:
                with self._translated_errors():
                    async with self.client() as http:
                        await follower.follow(http)
            except ClusterUnreachable:
                await self._wait_until_it_answers(follower, clock, note)
            else:
                return

    def client(self) -> HttpClient:
        http = HttpClient(replace(self.access.rest_config, user_agent=user_agent("cli")), random.Random())
        http.on_warning(print_warning)
        return http

    def translated(self, error: TarragonError) -> TarragonError:
        """Returns the error as a message about this cluster."""
        if not isinstance(error, Unavailable):
            return translate_error(error, self.name, self.command_prefix)
        if "certificate" in error.summary:
            has_expired = "certificate has expired" in error.summary
            return TarragonError(
                f"the certificate of {self.name} can't be verified",
                why=error.summary,
                remedy="ask its administrator to renew the certificate of the API server"
                if has_expired
                else "ask its administrator for the current certificate-authority, and set it in the kubeconfig",
            )
        return ClusterUnreachable(
            f"{self.name} does not answer",
            why=error.summary,
            remedy="check that it is running and reachable from this machine (VPN, proxy, firewall)",
        )

    async def _wait_until_it_answers(self, follower: JobFollower, clock: Clock, note: Notify) -> None:
        """Returns when the cluster answers again. Prints once that it does not."""
        job, attempts = follower.job, 0
        while True:
            await clock.sleep(RECONNECT_PAUSES[min(attempts, len(RECONNECT_PAUSES) - 1)])
            try:
                with self._translated_errors():
                    async with self.client() as http:
                        with suppress(NotFound):
                            await http.get(job.framework.resource, job.key)
            except ClusterUnreachable as error:
                if not attempts:
                    note(f"{self.name} does not answer ({error.cause}); retrying.")
                attempts += 1
                continue
            if attempts:
                note(f"{self.name} answers again.")
            return

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[HttpClient]:
        with self._translated_errors():
            async with self.client() as http:
                yield http

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translates API errors into messages about this cluster."""
        try:
            yield
        except (ApiError, NotInstalled) as error:
            raise self.translated(error) from error


class UnconfiguredTarget(KubeconfigTarget):
    """A cluster that no kubeconfig has, for a dry run that never connects. It has a name and a namespace."""

    def __init__(self, settings: GlobalOptions) -> None:
        unknown = ClusterConfig(context=settings.context, namespace="default", rest_config=RestConfig(url=""))
        super().__init__(unknown, settings)

    @property
    def name(self) -> str:
        return f"context {self.access.context}" if self.access.context else "the cluster"


class ClusterUnreachable(TarragonError):
    """The cluster did not answer, or answered with a server error: a later attempt may succeed."""
