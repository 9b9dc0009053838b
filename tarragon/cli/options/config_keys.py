"""Every setting there is, where its value comes from, and whether a value is one that it can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import click

from tarragon.cli.options.command_tree import COMMANDS
from tarragon.cli.options.config_file import OF_ALL, BadConfig, Configuration, Value, known_flags, unknown

SECRET_WORDS = ("token", "password", "secret")
NO_SETTINGS = frozenset({"config"})
"""Commands whose options are of the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`origin` in words: `TARRAGON_RUN_TIMEOUT`, the file, `default`."""

    key: str
    value: Value
    origin: str
    is_default: bool = False


def options(root: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Each with its key, those of all commands first."""
    yield from ((name, option) for name, option in known_flags(root).items() if name in OF_ALL)
    for name, module in COMMANDS.items():
        command: object = import_module(module).command
        if name not in NO_SETTINGS and isinstance(command, click.Command):
            yield from ((f"{name}.{flag}", option) for flag, option in known_flags(command).items())


def settings(root: click.Context, found: Configuration, environment: Mapping[str, str]) -> Iterator[Setting]:
    """In order of the commands, with those that are at their default. Raises BadConfig for a key that nobody knows."""
    every = dict(options(root.command))
    for key in found.values:
        if key not in every:
            raise unknown(found.path, key, list(every))
    for key, option in every.items():
        variable = next((name for name in variables(root, option) if environment.get(name)), None)
        if variable is not None:
            yield Setting(key=key, value=environment[variable], origin=variable)
        elif key in found.values:
            yield Setting(key=key, value=found.values[key], origin=str(found.path))
        else:
            yield Setting(key=key, value=_default(option), origin="default", is_default=True)


def variables(root: click.Context, option: click.Option) -> Sequence[str]:
    """From which it is read."""
    if option.envvar is None:
        named = root.auto_envvar_prefix and option.allow_from_autoenv and option.name
        return [f"{root.auto_envvar_prefix}_{option.name}".upper()] if named else []
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar)


def checked(root: click.Context, found: Configuration, key: str, text: str) -> Value:
    """As the file is to hold it. Raises BadConfig, or click's words about the value."""
    every = dict(options(root.command))
    option = every.get(key)
    if option is None:
        raise unknown(found.path, key, list(every))
    if option.is_flag:
        return bool(click.BOOL.convert(text, option, None))
    try:
        option.type.convert(text, option, None)
    except click.BadParameter as error:
        raise BadConfig(f"{key} can't be {text!r}", why=error.message) from error
    return [text] if option.multiple else text


def _default(option: click.Option) -> Value:
    """What nobody has said anything of: empty where there is none."""
    found = option.default
    if isinstance(found, bool | str):
        return found
    return str(found) if isinstance(found, int | float) else False if option.is_flag else ""
