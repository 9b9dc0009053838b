"""Shell completion of jobs, namespaces, contexts and replicas. It prints no errors and starts no cluster."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import LOCAL, GlobalOptions, embedded_home

if TYPE_CHECKING:
    from pathlib import Path

    from tarragon.cli.jobview.target import ClusterReader, ClusterTarget
    from tarragon.localcluster.home.home import Home

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z0-9_./:@][A-Za-z0-9_./:@%+=,-]*")

REMOTE_TIMEOUT = 1.5
"""Seconds that completion waits for a remote cluster."""
LOCAL_TIMEOUT = 10.0
"""Seconds that it waits for a server of this machine, which answers, but late when the machine is busy."""


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Completes the argument JOB: a name, kind/name or @latest."""
    names = job_names(_settings(ctx))
    if "/" in incomplete or incomplete.startswith("@"):
        from tarragon.cli.jobview.jobs import LATEST, kind_spellings
        from tarragon.frameworks.registry import FRAMEWORKS

        full = [
            f"{word}/{name.rpartition('/')[2]}"
            for each in FRAMEWORKS
            for word in kind_spellings(each)
            for name in names
        ]
        names = [LATEST, *full] if names else []
    return _matching(names, incomplete)


def complete_namespace(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    settings = _settings(ctx)
    if settings.is_local:
        return _matching(
            _local_names(embedded_home(), "namespaces", "/api/v1/namespaces", "", time.monotonic() + LOCAL_TIMEOUT),
            incomplete,
        )
    return _matching(_query(settings, _namespaces, []), incomplete)


def complete_context(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Completes contexts of the kubeconfigs, and `local`."""
    from tarragon.client.http.config import context_names

    found: Sequence[str] = ()
    with suppress(OSError, ValueError, TarragonError):
        found = context_names(os.environ)
    return _matching([LOCAL, *found], incomplete)


def complete_replica(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Completes replicas (`worker-0`) of the JOB that is already on the line."""
    return _matching([f"{word}-{index}" for word, number in _sizes(ctx).items() for index in range(number)], incomplete)


def complete_type(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _matching(list(_sizes(ctx)), incomplete)


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leaves the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


def local_job_names(place: Home, namespace: str) -> Sequence[str]:
    """Returns the jobs of the embedded cluster."""
    from tarragon.frameworks.registry import FRAMEWORKS

    resources = [framework.resource for framework in FRAMEWORKS]
    deadline = time.monotonic() + LOCAL_TIMEOUT
    return _typed_names(
        (each.full_name, name)
        for each in resources
        for name in _local_names(place, each.full_name, each.path(namespace), namespace, deadline)
    )


def _typed_names(jobs: Iterable[tuple[str, str]]) -> Sequence[str]:
    """Returns the jobs, given with their kinds, as every command finds them: with the kind where jobs share a name."""
    found = list(jobs)
    uses = Counter(name for _, name in found)
    return [name if uses[name] == 1 else f"{kind}/{name}" for kind, name in found]


def _settings(ctx: click.Context) -> GlobalOptions:
    return ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()


def _matching(names: Sequence[str], incomplete: str) -> list[str]:
    """Filters names by prefix. A name that a shell would not read as one word is left out: it is inserted unquoted."""
    return [name for name in names if name.startswith(incomplete) and _WORD.fullmatch(name)]


def job_names(settings: GlobalOptions) -> Sequence[str]:
    """Returns the jobs of the namespace; none if the cluster does not answer soon."""
    if settings.is_local:
        return local_job_names(embedded_home(), settings.explicit_namespace or "default")
    return _query(settings, _job_names, [])


def _sizes(ctx: click.Context) -> Mapping[str, int]:
    """Returns the requested number of replicas of the JOB, by type."""
    # click stops parsing at an option without a value, before it reads the arguments.
    name = str(ctx.params.get("name") or next(iter(ctx.args), ""))
    if not name:
        return {}
    return _query(_settings(ctx), lambda reader, namespace: _requested(reader, namespace, name), {})


async def _requested(reader: ClusterReader, namespace: str, name: str) -> Mapping[str, int]:
    from tarragon.cli.jobview.jobs import find_job

    job = await find_job(reader, name, namespace)
    return {kind.lower(): number for kind, number in job.requested.items()}


async def _job_names(reader: ClusterReader, namespace: str) -> Sequence[str]:
    from tarragon.cli.jobview.jobs import list_jobs
    from tarragon.client.port import Selector

    jobs = await list_jobs(reader, Selector(namespace=namespace))
    return _typed_names((job.framework.resource.full_name, job.key.name) for job in jobs)


async def _namespaces(reader: ClusterReader, _: str) -> Sequence[str]:
    from tarragon.kube.core import NAMESPACES

    return [each.metadata.name for each in (await reader.list(NAMESPACES)).items]


def _query(settings: GlobalOptions, ask: Callable[[ClusterReader, str], Awaitable[T]], nothing: T) -> T:
    """Reads from a cluster, or from the database of an embedded cluster. Hides messages: they would break the line."""
    import asyncio

    async def query() -> T:
        cluster = _target(settings)
        timeout = LOCAL_TIMEOUT if settings.is_local else REMOTE_TIMEOUT
        async with asyncio.timeout(timeout), cluster.reading() as reader:
            return await ask(reader, cluster.namespace)

    with suppress(OSError, TimeoutError, TarragonError), redirect_stderr(io.StringIO()):
        return asyncio.run(query())
    return nothing


def _target(settings: GlobalOptions) -> ClusterTarget:
    """Returns the cluster. The embedded one needs a deadline: no timeout of asyncio ends its reads."""
    if settings.is_local:
        from tarragon.cli.targets.embedded import EmbeddedTarget

        return EmbeddedTarget(embedded_home(), settings.explicit_namespace, time.monotonic() + LOCAL_TIMEOUT)
    from tarragon.cli.targets.resolving import resolve_target

    return resolve_target(settings)


def _local_names(place: Home, kind: str, path: str, namespace: str, deadline: float) -> Sequence[str]:
    """Returns names of objects of the embedded cluster, from its server or, if it does not run, from its database.

    Waits for the server until `deadline` (monotonic).
    """
    from tarragon.localcluster.home.lock import read_server

    server = read_server(place)
    with suppress(OSError, ValueError, KeyError, TarragonError):
        if server is not None and server.is_running():
            left = deadline - time.monotonic()
            return list(_fetch_names(place, server.url + path, left)) if left > 0 else []
        return list(_read_names(place.store_path, kind, namespace))
    return []


def _fetch_names(place: Home, url: str, timeout: float) -> Iterator[str]:
    """Fetches names with urllib: importing a client library would take longer than everything else."""
    import ssl
    from urllib.request import Request, urlopen

    headers = {
        "Authorization": f"Bearer {place.read_token()}",
        "Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    }
    context = ssl.create_default_context(cafile=str(place.ca))
    with urlopen(Request(url, headers=headers), timeout=timeout, context=context) as response:  # noqa: S310 - our own server
        for item in json.load(response)["items"]:
            yield item["metadata"]["name"]


def _read_names(store: Path, kind: str, namespace: str) -> Iterator[str]:
    from tarragon.localcluster.storage.database import DatabaseReader

    reading = DatabaseReader.open(store)
    try:
        for body in reading.bodies(kind, namespace):
            yield json.loads(body)["metadata"]["name"]
    finally:
        reading.close()
