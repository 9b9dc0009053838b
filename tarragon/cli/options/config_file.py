"""The user's config file: what is said there holds where no flag and no variable says otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.errors import TarragonError

if TYPE_CHECKING:
    from tarragon.kube.meta import Json

VARIABLE = "TARRAGON_CONFIG"
OF_ALL = ("context", "kubeconfig", "namespace", "verbose", "color")
"""Keys of the first level: the options that every command has. All others stand below the name of their command."""
OF_KUBECTL = frozenset({"context", "kubeconfig"})
"""What `kubectl tarragon` takes from kubectl, not from our file."""

Value = str | bool | Sequence[str]


class BadConfig(TarragonError):
    """Exit code 2: mended by an edit."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """`values` by key: `namespace`, `run.timeout`."""

    path: Path
    values: Mapping[str, Value] = field(default_factory=dict)

    def section(self, command: str) -> Mapping[str, Value]:
        """By the flags' names: of one command, or of all where it is empty."""
        if not command:
            return {name: value for name, value in self.values.items() if "." not in name}
        head = f"{command}."
        return {name.removeprefix(head): value for name, value in self.values.items() if name.startswith(head)}


def location(environment: Mapping[str, str]) -> Path:
    """TARRAGON_CONFIG, or where programs keep such files."""
    named = environment.get(VARIABLE, "")
    if named:
        return Path(named).expanduser()
    base = environment.get("XDG_CONFIG_HOME", "") or "~/.config"
    return Path(base).expanduser() / "tarragon" / "config.yaml"


def configuration(environment: Mapping[str, str] = os.environ) -> Configuration:
    """What the file says; nothing where there is none. Raises BadConfig when it can't be read as settings."""
    path = location(environment)
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return Configuration(path=path)
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path} is no text", why=f"byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise BadConfig(f"can't read {path}", why=error.strerror or str(error)) from error
    return Configuration(path=path, values=dict(_flat(path, parsed(path, text))))


def parsed(path: Path, text: str) -> dict[str, Json]:
    """Raises BadConfig."""
    import yaml

    try:
        found: Json = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise BadConfig(f"{path} is not YAML", why=f"{where}{getattr(error, 'problem', None) or error}") from error
    except (ValueError, RecursionError) as error:
        # Of the 99th day of a month, and the like, PyYAML lets Python's own words through.
        raise BadConfig(f"{path} is not YAML", why=str(error)) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadConfig(
            f"{path} holds no settings", why="it is no map of names and values", remedy="namespace: research"
        )
    return found


def require_commands(found: Configuration, commands: Sequence[str]) -> None:
    """Raises BadConfig for settings of a command that there is not: they would never be read."""
    for key in found.values:
        section, dot, flag = key.partition(".")
        if dot and section not in commands:
            raise unknown(found.path, key, [f"{name}.{flag}" for name in commands])


def _flat(path: Path, found: Mapping[str, Json]) -> Iterator[tuple[str, Value]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{flag}", _value(path, f"{name}.{flag}", each)) for flag, each in value.items())
        else:
            yield str(name), _value(path, str(name), value)


def _value(path: Path, key: str, found: Json) -> Value:
    """As a command line would say it. A number is as good as its text, which is what options read."""
    if isinstance(found, bool | str):
        return found
    if isinstance(found, int | float):
        return str(found)
    if isinstance(found, list) and all(isinstance(each, str | int | float) for each in found):
        return [str(each) for each in found]
    raise BadConfig(f"{path}: {key} can have no such value", remedy="write a text, a number, true or false")


def known_flags(command: click.Command) -> Mapping[str, click.Option]:
    """Of one command, by the name that users know: `timeout` for --timeout, whatever we call it inside."""
    options = (param for param in command.params if isinstance(param, click.Option) and not param.hidden)
    return {flag_name(option): option for option in options}


def flag_name(option: click.Option) -> str:
    """Of several spellings the longest one: `output` of `-o` and `--output`."""
    longest = max(option.opts, key=len)
    return longest.lstrip("-") if len(longest) > len("-o") else str(option.name)


def unknown(path: Path, key: str, known: Sequence[str]) -> BadConfig:
    from tarragon.kube.reader import nearest

    meant = nearest(key, known)
    remedy = f"did you mean {meant}?" if meant else "`tarragon config view --all` shows every setting there is"
    return BadConfig(f"{path}: there is no setting {key}", remedy=remedy)


def defaults(command: click.Command, found: Configuration, section: str, *, is_plugin: bool) -> dict[str, Value]:
    """For click's `default_map`, by its own names. Raises BadConfig for a flag that the command has not."""
    flags = known_flags(command)
    made: dict[str, Value] = {}
    for flag, value in found.section(section).items():
        option = flags.get(flag)
        if option is None or option.name is None:
            key = f"{section}.{flag}" if section else flag
            raise unknown(found.path, key, [f"{section}.{name}" if section else name for name in flags])
        if is_plugin and not section and flag in OF_KUBECTL:
            continue
        if isinstance(value, str) and option.multiple:
            value = [value]  # noqa: PLW2901 - one is as good as a list of one
        made[option.name] = value
    return made
