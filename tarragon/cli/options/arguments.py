"""What stands on a command line, read: durations, assignments, types of replicas, generations."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

P = ParamSpec("P")
T = TypeVar("T")

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Whether, and for how many seconds, the cluster is waited for."""

    waits: bool = False
    limit: float | None = None


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
    if limit is not None and not waits:
        raise click.UsageError("--timeout limits --wait: give both")
    return Patience(waits=waits, limit=limit)


def instant(text: str) -> dt.datetime:
    """`2026-11-21T12:00:00Z`; without a zone it is this machine's time."""
    try:
        return dt.datetime.fromisoformat(text.strip()).astimezone(dt.UTC)
    except (ValueError, OverflowError):
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
