"""The user's config file: defaults for options that neither a flag nor an environment variable sets."""

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
GLOBAL_KEYS = ("context", "kubeconfig", "namespace", "verbose", "quiet", "color", "no-color")
"""Top-level keys: the global options. All other keys are below the name of their command."""
KUBECTL_KEYS = frozenset({"context", "kubeconfig"})
"""Keys that `kubectl tarragon` ignores in the file: it takes them from kubectl."""

Value = str | bool | Sequence[str]


class InvalidConfig(TarragonError):
    """The config file is invalid. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The content of the config file: `values` by key, such as `namespace` or `run.timeout`."""

    path: Path
    values: Mapping[str, Value] = field(default_factory=dict)

    def section(self, command: str) -> Mapping[str, Value]:
        """Returns the values of one command by flag name; the global options if `command` is empty."""
        if not command:
            return {name: value for name, value in self.values.items() if "." not in name}
        head = f"{command}."
        return {name.removeprefix(head): value for name, value in self.values.items() if name.startswith(head)}


def config_path(environment: Mapping[str, str]) -> Path:
    """Returns the path of the config file: TARRAGON_CONFIG, or tarragon/config.yaml in XDG_CONFIG_HOME or ~/.config."""
    named = environment.get(VARIABLE, "")
    if named:
        return Path(named).expanduser()
    base = environment.get("XDG_CONFIG_HOME", "") or "~/.config"
    return Path(base).expanduser() / "tarragon" / "config.yaml"


def read_config(environment: Mapping[str, str] = os.environ) -> ConfigFile:
    """Reads the config file; empty if it does not exist. Raises InvalidConfig if it is invalid."""
    path = config_path(environment)
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ConfigFile(path=path)
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not a text file", why=f"byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise InvalidConfig(f"can't read {path}", why=error.strerror or str(error)) from error
    return ConfigFile(path=path, values=dict(_flat(path, parse_config(path, text))))


def parse_config(path: Path, text: str) -> dict[str, Json]:
    """Raises InvalidConfig."""
    import yaml

    try:
        found: Json = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise InvalidConfig(f"{path} is not YAML", why=f"{where}{getattr(error, 'problem', None) or error}") from error
    except (ValueError, RecursionError) as error:
        # PyYAML passes on Python's own errors, for example for an invalid date.
        raise InvalidConfig(f"{path} is not YAML", why=str(error)) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidConfig(
            f"{path} contains no settings",
            why="expected a map of keys and values",
            remedy="for example: namespace: research",
        )
    return found


def require_commands(found: ConfigFile, commands: Sequence[str]) -> None:
    """Raises InvalidConfig for settings of an unknown command: they would never be read."""
    for key in found.values:
        section, dot, flag = key.partition(".")
        if dot and section not in commands:
            raise unknown_setting(found.path, key, [f"{name}.{flag}" for name in commands])


def _flat(path: Path, found: Mapping[str, Json]) -> Iterator[tuple[str, Value]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{flag}", _value(path, f"{name}.{flag}", each)) for flag, each in value.items())
        else:
            yield str(name), _value(path, str(name), value)


def _value(path: Path, key: str, found: Json) -> Value:
    """Converts a YAML value to what a command line passes: numbers become text."""
    if isinstance(found, bool | str):
        return found
    if isinstance(found, int | float):
        return str(found)
    if isinstance(found, list) and all(isinstance(each, str | int | float) for each in found):
        return [str(each) for each in found]
    raise InvalidConfig(f"{path}: invalid value for {key}", remedy="use a string, a number, true or false")


def flags_of(command: click.Command) -> Mapping[str, click.Option]:
    """Returns a command's options by flag name: `timeout` for --timeout, whatever the parameter is called."""
    options = (param for param in command.params if isinstance(param, click.Option) and not param.hidden)
    options = (option for option in options if not option.is_eager)  # --version ends the program
    return {flag_name(option): option for option in options}


def flag_name(option: click.Option) -> str:
    """Returns the name of the longest spelling: `output` for `-o` and `--output`."""
    longest = max(option.opts, key=len)
    return longest.lstrip("-") if len(longest) > len("-o") else str(option.name)


def unknown_setting(path: Path, key: str, known: Sequence[str]) -> InvalidConfig:
    from tarragon.kube.field_reader import nearest_name

    similar = nearest_name(key, known)
    remedy = f"did you mean {similar}?" if similar else "`tarragon config view --all` lists all settings"
    return InvalidConfig(f"{path}: unknown setting {key}", remedy=remedy)


def default_map(command: click.Command, found: ConfigFile, section: str, *, is_plugin: bool) -> dict[str, Value]:
    """Returns click's `default_map`, by parameter name. Raises InvalidConfig for an unknown flag."""
    flags = flags_of(command)
    result: dict[str, Value] = {}
    for flag, value in found.section(section).items():
        option = flags.get(flag)
        if option is None or option.name is None:
            key = f"{section}.{flag}" if section else flag
            raise unknown_setting(found.path, key, [f"{section}.{name}" if section else name for name in flags])
        if is_plugin and not section and flag in KUBECTL_KEYS:
            continue
        if isinstance(value, str) and option.multiple:
            value = [value]  # noqa: PLW2901 - a single value stands for a list of one
        result[option.name] = value
    return result
