"""All settings, where their values come from, and the validation of new values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import click

from tarragon.cli.options.command_tree import COMMANDS
from tarragon.cli.options.config_file import GLOBAL_KEYS, ConfigFile, InvalidConfig, Value, flags_of, unknown_setting

NO_SETTINGS = frozenset({"config"})
"""Commands whose options can't be set in the config file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting and its value. `origin` is an environment variable, the file's path, or `default`."""

    key: str
    value: Value
    origin: str
    is_default: bool = False


def all_options(root: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yields every option with its key, the global options first."""
    yield from ((name, option) for name, option in flags_of(root).items() if name in GLOBAL_KEYS)
    for name, module in COMMANDS.items():
        command: object = import_module(module).command
        if name not in NO_SETTINGS and isinstance(command, click.Command):
            yield from ((f"{name}.{flag}", option) for flag, option in flags_of(command).items())


def all_settings(root: click.Context, found: ConfigFile, environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yields all settings in the order of the commands, also defaults. Raises InvalidConfig for an unknown key."""
    known = dict(all_options(root.command))
    for key in found.values:
        if key not in known:
            raise unknown_setting(found.path, key, list(known))
    for key, option in known.items():
        variable = next((name for name in environment_variables(root, option) if environment.get(name)), None)
        if variable is not None:
            yield Setting(key=key, value=environment[variable], origin=variable)
        elif key in found.values:
            yield Setting(key=key, value=found.values[key], origin=str(found.path))
        else:
            yield Setting(key=key, value=_default(option), origin="default", is_default=True)


def environment_variables(root: click.Context, option: click.Option) -> Sequence[str]:
    """Returns the environment variables that set the option."""
    if option.envvar is None:
        named = root.auto_envvar_prefix and option.allow_from_autoenv and option.name
        return [f"{root.auto_envvar_prefix}_{option.name}".upper()] if named else []
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar)


def validated_value(root: click.Context, found: ConfigFile, key: str, text: str) -> Value:
    """Returns the value as the file stores it. Raises InvalidConfig or click.BadParameter for an invalid one."""
    known = dict(all_options(root.command))
    option = known.get(key)
    if option is None:
        raise unknown_setting(found.path, key, list(known))
    if option.is_flag:
        return bool(click.BOOL.convert(text, option, None))
    try:
        option.type.convert(text, option, None)
    except click.BadParameter as error:
        raise InvalidConfig(f"invalid value {text!r} for {key}", why=error.message) from error
    return [text] if option.multiple else text


def _default(option: click.Option) -> Value:
    """Returns the option's default; empty if it has none."""
    found = option.default
    if isinstance(found, bool | str):
        return found
    return str(found) if isinstance(found, int | float) else False if option.is_flag else ""
