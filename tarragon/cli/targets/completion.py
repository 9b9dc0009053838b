"""What there is for whoever presses Tab: jobs, namespaces, contexts, replicas. No error is told, no cluster started."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import LOCAL, Settings, home

if TYPE_CHECKING:
    from pathlib import Path

    from tarragon.cli.jobview.target import Looker
    from tarragon.localcluster.home.home import Home

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z0-9_./:@][A-Za-z0-9_./:@%+=,-]*")

PATIENCE = 1.5
"""Seconds that somebody who has pressed Tab will wait for a cluster elsewhere."""


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For the argument JOB of every command: a name, kind/name or @latest."""
    names = _jobs(_settings(ctx))
    if "/" in incomplete or incomplete.startswith("@"):
        from tarragon.cli.jobview.jobs import LATEST, spellings
        from tarragon.frameworks.catalog import FRAMEWORKS

        full = [
            f"{word}/{name.rpartition('/')[2]}" for each in FRAMEWORKS for word in spellings(each) for name in names
        ]
        names = [LATEST, *full] if names else []
    return _beginning(names, incomplete)


def complete_namespace(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    settings = _settings(ctx)
    if settings.is_local:
        return _beginning(_local(home(), "namespaces", "/api/v1/namespaces", ""), incomplete)
    return _beginning(_looked(settings, _namespaces, []), incomplete)


def complete_context(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Of all kubeconfigs there are, and our own."""
    from tarragon.client.http.connection import contexts

    found: Sequence[str] = ()
    with suppress(OSError, ValueError, TarragonError):
        found = contexts(os.environ)
    return _beginning([LOCAL, *found], incomplete)


def complete_replica(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Of the JOB that stands on the line already: `worker-0`."""
    return _beginning(
        [f"{word}-{index}" for word, number in _sizes(ctx).items() for index in range(number)], incomplete
    )


def complete_type(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(list(_sizes(ctx)), incomplete)


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The shell knows best."""
    return [CompletionItem(incomplete, type="file")]


def job_names(place: Home, namespace: str) -> Sequence[str]:
    """Of the embedded cluster: where two kinds have a name, that of the second with its kind in front."""
    from tarragon.frameworks.catalog import FRAMEWORKS

    found: list[str] = []
    for framework in FRAMEWORKS:
        resource = framework.resource
        for name in _local(place, resource.full_name, resource.path(namespace), namespace):
            found.append(f"{resource.full_name}/{name}" if name in found else name)
    return found


def _settings(ctx: click.Context) -> Settings:
    return ctx.obj if isinstance(ctx.obj, Settings) else Settings()


def _beginning(names: Sequence[str], incomplete: str) -> list[str]:
    """Shells insert a name as it is: one that they would not read as a word of its own is not offered."""
    return [name for name in names if name.startswith(incomplete) and _WORD.fullmatch(name)]


def _jobs(settings: Settings) -> Sequence[str]:
    if settings.is_local:
        return job_names(home(), settings.given_namespace or "default")
    return _looked(settings, _job_names, [])


def _sizes(ctx: click.Context) -> Mapping[str, int]:
    """Replicas of each type that the JOB wishes for."""
    # An option that lacks its value ends click's reading before it comes to the arguments.
    name = str(ctx.params.get("name") or next(iter(ctx.args), ""))
    if not name:
        return {}
    return _looked(_settings(ctx), lambda looker, namespace: _wished(looker, namespace, name), {})


async def _wished(looker: Looker, namespace: str, name: str) -> Mapping[str, int]:
    from tarragon.cli.jobview.jobs import find

    job = await find(looker, name, namespace)
    return {kind.word: number for kind, number in job.wished.items()}


async def _job_names(looker: Looker, namespace: str) -> Sequence[str]:
    from tarragon.cli.jobview.jobs import all_jobs
    from tarragon.client.port import Selection

    jobs = await all_jobs(looker, Selection(namespace=namespace))
    bare = {job.key.name for job in jobs if job.address.name == job.key.name}
    return [job.address.name if job.key.name in bare else job.key.name for job in jobs]


async def _namespaces(looker: Looker, _: str) -> Sequence[str]:
    from tarragon.kube.core import NAMESPACES

    return [each.metadata.name for each in (await looker.list(NAMESPACES)).items]


def _looked(settings: Settings, ask: Callable[[Looker, str], Awaitable[T]], nothing: T) -> T:
    """Also of an embedded cluster that does not run. Words for people would stand in the middle of their line."""
    import asyncio

    from tarragon.cli.targets.resolving import target

    async def asked() -> T:
        where = target(settings)
        async with asyncio.timeout(PATIENCE), where.looking() as looker:
            return await ask(looker, where.namespace)

    with suppress(OSError, TimeoutError, TarragonError), redirect_stderr(io.StringIO()):
        return asyncio.run(asked())
    return nothing


def _local(place: Home, kind: str, path: str, namespace: str) -> Sequence[str]:
    """Names of the embedded cluster's objects, asked of its server, or read from its disk where none runs."""
    from tarragon.localcluster.home.presence import read_server

    server = read_server(place)
    with suppress(OSError, ValueError, KeyError, TarragonError):
        if server is not None and server.lives():
            return list(_asked(place, server.url + path))
        return list(_read(place.store, kind, namespace))
    return []


def _asked(place: Home, url: str) -> Iterator[str]:
    """By hand: importing a client library takes longer than all the rest."""
    import ssl
    from urllib.request import Request, urlopen

    headers = {
        "Authorization": f"Bearer {place.read_token()}",
        "Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    }
    trusted = ssl.create_default_context(cafile=str(place.ca))
    with urlopen(Request(url, headers=headers), timeout=PATIENCE, context=trusted) as answer:  # noqa: S310 - our own server
        for item in json.load(answer)["items"]:
            yield item["metadata"]["name"]


def _read(store: Path, kind: str, namespace: str) -> Iterator[str]:
    from tarragon.localcluster.storage.database import Reading

    reading = Reading.open(store)
    try:
        for body in reading.bodies(kind, namespace):
            yield json.loads(body)["metadata"]["name"]
    finally:
        reading.close()
