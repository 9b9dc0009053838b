"""Parsers for command line values: durations, times, assignments, replica types, API generations."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from tarragon.kube.name_validation import subdomain

P = ParamSpec("P")
T = TypeVar("T")

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")
_ENV_SOURCES = {"secret": "secretRef", "configmap": "configMapRef", "cm": "configMapRef"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions:
    """Whether a command waits for the cluster, and for how many seconds at most."""

    waits: bool = False
    limit: float | None = None


def duration(text: str) -> float:
    """Parses `90`, `90s` or `1h30m` into seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not match[0]:
        raise click.BadParameter(f"{text!r} is not a duration; use for example 90, 90s, 5m or 1h30m")
    return sum(float(match[unit] or 0) * length for unit, length in (("h", 3600), ("m", 60), ("s", 1)))


def wait_options(flag: str, text: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Adds `--wait` (passed as `waits`) and `--timeout` (passed as `limit`)."""

    def with_both(command: Callable[P, T]) -> Callable[P, T]:
        limit = click.option(
            "--timeout",
            "limit",
            type=duration,
            metavar="DURATION",
            help=f"with {flag}: exit with code 101 after this time (90, 5m, 2h)",
        )
        return click.option(flag, "waits", is_flag=True, help=text)(limit(command))

    return with_both


def checked_wait_options(*, waits: bool, limit: float | None) -> WaitOptions:
    """Raises UsageError if a limit is given without --wait."""
    if limit is not None and not waits:
        raise click.UsageError("--timeout requires --wait")
    return WaitOptions(waits=waits, limit=limit)


def timestamp(text: str) -> dt.datetime:
    """Parses `2026-11-21T12:00:00Z`. A time without a zone is local time."""
    try:
        return dt.datetime.fromisoformat(text.strip()).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time; use for example 2026-11-21T12:00:00Z") from None


def assignment(text: str) -> tuple[str, str]:
    """Splits `PATH=VALUE`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is not an assignment; use NAME=VALUE")
    return name, value


def is_variable_name(name: str) -> bool:
    """Whether a shell could set a variable of that name."""
    return _VARIABLE.fullmatch(name) is not None


def variable(text: str) -> tuple[str, str]:
    """Parses `KEY=VALUE`, or `KEY` for the value that it has here. Still takes `IMAGE=FOLDER`, which --env once was."""
    name, sign, value = text.partition("=")
    if sign and name and not is_variable_name(name):
        if any(mark in name for mark in "/:*") or is_folder(value):
            return name, str(folder_mapping(text)[1])
        raise click.BadParameter(f"{name!r} is not a name of a variable; use letters, digits and '_'")
    if not is_variable_name(name):
        raise click.BadParameter(f"{text!r} is not a variable; use KEY=VALUE, or KEY to pass yours")
    if not sign and name not in os.environ:
        raise click.BadParameter(f"{name} is not set in your environment; use {name}=VALUE")
    value = value if sign else os.environ[name]
    for fault in value_faults(value):
        raise click.BadParameter(f"the value of {name} {fault}")
    return name, value


def env_source(text: str) -> tuple[str, str]:
    """Parses `secret/NAME` or `configmap/NAME` into the field of envFrom for such an object, and its name."""
    kind, _, name = text.partition("/")
    field = _ENV_SOURCES.get(kind.lower())
    if field is None or not name:
        raise click.BadParameter(f"{text!r} is not a source of variables; use secret/NAME or configmap/NAME")
    fault = subdomain(name)
    if fault:
        raise click.BadParameter(f"{name!r} is not a name of an object: {fault}")
    return field, name


def value_faults(value: str) -> Iterator[str]:
    """Yields why a text can't be a variable's value, or an argument, in a manifest."""
    if "\0" in value:
        yield "contains a NUL"
    try:
        value.encode()
    except UnicodeEncodeError:
        yield "is not UTF-8"


def is_folder(path: str) -> bool:
    """Whether there is such a folder. A path that can't be looked up is none."""
    try:
        return Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


def replica_count(text: str) -> tuple[str, int]:
    """Parses `ps=2` into (`PS`, 2). The case of the type does not matter."""
    from tarragon.frameworks.registry import FRAMEWORKS
    from tarragon.kube.field_reader import nearest_name

    name, number = assignment(text)
    types = {kind.lower(): str(kind) for framework in FRAMEWORKS for kind in framework.roles}
    if name.lower() not in types:
        similar = nearest_name(name, types.values())
        remedy = f"did you mean {similar}?" if similar else f"valid types are {', '.join(types.values())}"
        raise click.BadParameter(f"unknown replica type {name}; {remedy}")
    if not (number.isascii() and number.isdecimal()):
        raise click.BadParameter(f"{number!r} is not a number of replicas")
    return types[name.lower()], int(number)


def folder_mapping(text: str) -> tuple[str, Path]:
    """Parses `NAME=FOLDER`. The folder becomes an absolute path."""
    name, value = assignment(text)
    if not is_folder(value):
        raise click.BadParameter(f"{value} is not an existing folder")
    return name, Path(value).expanduser().absolute()


def api_generation(text: str) -> str:
    """Parses an API generation for `convert --to`. A version that two groups have stays without a group."""
    from tarragon.frameworks.registry import convertible_generations
    from tarragon.kube.field_reader import nearest_name

    generations = convertible_generations()
    if text in generations:
        return text
    found = [name for name in generations if name.rpartition("/")[2] == text]
    if len(found) == 1:
        return found[0]
    if found:
        return text
    similar = nearest_name(text, generations)
    remedy = f"did you mean {similar}?" if similar else f"use one of {', '.join(generations)}"
    raise click.BadParameter(f"unknown API generation {text}; {remedy}")


def complete_generation(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from tarragon.frameworks.registry import convertible_generations

    return [name for name in convertible_generations() if name.startswith(incomplete)]
