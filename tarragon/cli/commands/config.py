"""`tarragon config`: shows and changes the configuration file, which sets defaults for flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import TarragonCommand

FORMS = ("table", "json", "yaml")


class _Subcommand(TarragonCommand):
    """A subcommand of `config`. It ignores the configuration file, so that its own output does not depend on it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Command.parse_args(self, ctx, args)

    def name_variable(self, param: click.Parameter) -> None:
        """Keep click's own variable name, which contains both command names: TARRAGON_CONFIG_VIEW_FORM."""


class _Group(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from tarragon.cli.options.example_lines import write_examples

        write_examples(ctx, formatter)


@click.group("config", cls=_Group)
def command() -> None:
    """Show and change the configuration file, which sets defaults for flags.

    Precedence: the flag, then its environment variable (TARRAGON_RUN_TIMEOUT), then the file, then the default.
    KEY is COMMAND.FLAG (run.timeout), or a flag of every command (namespace).
    """


@command.command("view", cls=_Subcommand)
@click.option("--show-origin", "with_origin", is_flag=True, help="also show where each value comes from")
@click.option("--all", "everything", is_flag=True, help="also show settings at their defaults")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", help="output format; table by default"
)
@click.pass_context
def view(ctx: click.Context, *, with_origin: bool, everything: bool, form: str) -> None:
    """Show the settings from the environment and the file."""
    from tarragon.cli.jobview.schema import config_document
    from tarragon.cli.options.config_file import read_config
    from tarragon.cli.options.config_keys import all_settings
    from tarragon.cli.options.formats import FORMATTERS
    from tarragon.cli.output.words import table

    found = read_config()
    shown = [each for each in all_settings(ctx.find_root(), found, os.environ) if everything or not each.is_default]
    if form in FORMATTERS:
        click.echo(FORMATTERS[form](config_document(found.path, shown)))
        return
    if not shown:
        print_note(f"No settings in {found.path} or the environment")
        return
    header = ("KEY", "VALUE", "ORIGIN")[: 3 if with_origin else 2]
    rows = [(each.key, _text(each.value), each.origin)[: len(header)] for each in shown]
    for line in table(header, rows):
        click.echo(line)


@command.command("set", cls=_Subcommand)
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_key(ctx: click.Context, key: str, value: str) -> None:
    """Set KEY to VALUE in the file: tarragon config set run.timeout 2h."""
    from tarragon.cli.options.config_file import read_config
    from tarragon.cli.options.config_keys import validated_value

    found = read_config()
    parsed = validated_value(ctx.find_root(), found, key, value)
    _write(found.path, _nested({**found.values, key: parsed}))
    print_note(f"{key} set in {found.path}")


@command.command("unset", cls=_Subcommand)
@click.argument("key")
def unset(key: str) -> None:
    """Remove KEY from the file."""
    from tarragon.cli.options.config_file import read_config, unknown_setting

    found = read_config()
    if key not in found.values:
        raise unknown_setting(found.path, key, list(found.values))
    _write(found.path, _nested({name: value for name, value in found.values.items() if name != key}))
    print_note(f"{key} unset in {found.path}")


@command.command("path", cls=_Subcommand)
def path() -> None:
    """Print the path of the file; TARRAGON_CONFIG overrides it."""
    from tarragon.cli.options.config_file import config_path

    click.echo(config_path(os.environ))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _nested(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the settings as nested mappings, one for each command, as the file stores them."""
    result: dict[str, object] = {}
    for key, value in values.items():
        section, dot, flag = key.partition(".")
        if not dot:
            result[key] = value
            continue
        inner = result.setdefault(section, {})
        if isinstance(inner, dict):
            inner[flag] = value
    return result


def _write(path: Path, values: Mapping[str, object]) -> None:
    """Write the file atomically. Comments are lost: the old file is kept beside it, with a warning."""
    from tarragon.base.errors import TarragonError
    from tarragon.cli.output.yaml_style import yaml_dump

    before = path.read_text() if path.exists() else ""
    if any(line.lstrip().startswith("#") for line in before.splitlines()):
        backup = path.with_name(f"{path.name}.before")
        backup.write_text(before)
        print_note(f"warning: comments were removed; the previous file is saved as {backup}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(yaml_dump(values) + "\n" if values else "")
        new.replace(path)
    except OSError as error:
        raise TarragonError(f"can't write {path}", why=error.strerror or str(error)) from error
