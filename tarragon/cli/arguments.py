"""JOB on the command line, with the names there are for whoever presses Tab."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.settings import Settings, home

if TYPE_CHECKING:
    from tarragon.cli.editing import Patience
    from tarragon.kube.meta import JsonObject
    from tarragon.localcluster.home import Home

P = ParamSpec("P")
T = TypeVar("T")

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")

PATIENCE = 1.5
"""Seconds that somebody who has pressed Tab will wait."""


def duration(text: str) -> float:
    """`90`, `90s`, `1h30m` as seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not match[0]:
        raise click.BadParameter(f"{text!r} is no duration; write for example 90, 90s, 5m or 1h30m")
    return sum(float(match[unit] or 0) * length for unit, length in (("h", 3600), ("m", 60), ("s", 1)))


def patience_options(flag: str, text: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`--wait` as `waits`, and `--timeout` as `limit`."""

    def with_both(command: Callable[P, T]) -> Callable[P, T]:
        limit = click.option(
            "--timeout",
            "limit",
            type=duration,
            metavar="DURATION",
            help=f"with {flag}: give up after that long (90, 5m, 2h) with exit code 101",
        )
        return click.option(flag, "waits", is_flag=True, help=text)(limit(command))

    return with_both


def waited(*, waits: bool, limit: float | None) -> Patience:
    """Raises UsageError for a limit of nothing."""
    from tarragon.cli.editing import Patience

    if limit is not None and not waits:
        raise click.UsageError("--timeout limits --wait: give both")
    return Patience(waits=waits, limit=limit)


def instant(text: str) -> dt.datetime:
    """`2026-11-21T12:00:00Z`; without a zone it is this machine's time."""
    try:
        return dt.datetime.fromisoformat(text.strip()).astimezone(dt.UTC)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; write for example 2026-11-21T12:00:00Z") from None


def assignment(text: str) -> tuple[str, str]:
    """`PATH=VALUE` in two."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is no assignment; write NAME=VALUE")
    return name, value


def replicas(text: str) -> tuple[str, int]:
    """`ps=2` as (`PS`, 2): types in any capitals."""
    from tarragon.job.model import ReplicaType
    from tarragon.kube.reader import nearest

    name, number = assignment(text)
    known = {kind.value.lower(): kind.value for kind in ReplicaType}
    if name.lower() not in known:
        meant = nearest(name, known.values())
        remedy = f"did you mean {meant}?" if meant else f"there are {', '.join(known.values())}"
        raise click.BadParameter(f"there is no type of replicas called {name}; {remedy}")
    if not (number.isascii() and number.isdecimal()):
        raise click.BadParameter(f"{number!r} is no number of replicas")
    return known[name.lower()], int(number)


def folder(text: str) -> tuple[str, Path]:
    """`NAME=FOLDER`, the folder as an absolute path."""
    name, place = assignment(text)
    path = Path(place).expanduser().absolute()
    if not path.is_dir():
        raise click.BadParameter(f"{place} is no folder that is there")
    return name, path


def generation(text: str) -> str:
    """A generation of the API, as `convert --to` has it: a version alone will do where only one group has it."""
    from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
    from tarragon.kube.reader import nearest

    if text in GENERATIONS:
        return text
    found = [name for name in GENERATIONS if name.rpartition("/")[2] == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise click.BadParameter(f"two groups have a {text}; write {' or '.join(found)}")
    meant = nearest(text, GENERATIONS)
    remedy = f"did you mean {meant}?" if meant else f"write one of {', '.join(GENERATIONS)}"
    raise click.BadParameter(f"there is no generation {text}; {remedy}")


def complete_generation(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS

    return [name for name in GENERATIONS if name.startswith(incomplete)]


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For the argument JOB of every command: a name, kind/name or @latest."""
    settings = ctx.obj if isinstance(ctx.obj, Settings) else Settings()
    local = settings.given_namespace or "default"
    names = job_names(home(), local) if settings.is_local else _of_a_cluster(settings)
    return [name for name in names if name.startswith(incomplete)]


def _of_a_cluster(settings: Settings) -> Sequence[str]:
    import asyncio

    from tarragon.cli.jobs import all_jobs
    from tarragon.cli.target import target
    from tarragon.cluster.port import Selection

    async def asked() -> Sequence[str]:
        where = target(settings)
        async with asyncio.timeout(PATIENCE), where.looking() as looker:
            return [job.key.name for job in await all_jobs(looker, Selection(namespace=where.namespace))]

    with suppress(OSError, TimeoutError, TarragonError):
        return asyncio.run(asked())
    return []


def job_names(place: Home, namespace: str) -> Sequence[str]:
    """Nothing where nothing can be found out: whoever presses Tab wants no error."""
    from tarragon.frameworks.catalog import FRAMEWORKS
    from tarragon.localcluster.presence import read_server

    server = read_server(place)
    with suppress(OSError, ValueError, KeyError, TarragonError):
        if server is not None and server.lives():
            paths = [framework.resource.path(namespace) for framework in FRAMEWORKS]
            return [name for path in paths for name in _asked(place, server.url + path)]
        return list(_read(place, [framework.resource.full_name for framework in FRAMEWORKS], namespace))
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


def _read(place: Home, kinds: Sequence[str], namespace: str) -> Iterator[str]:
    from tarragon.localcluster.database import Reading

    reading = Reading.open(place.store)
    try:
        for kind in kinds:
            for body in reading.bodies(kind, namespace):
                thing: JsonObject = json.loads(body)
                yield thing["metadata"]["name"]
    finally:
        reading.close()
