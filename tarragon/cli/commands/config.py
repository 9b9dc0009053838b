"""`tarragon config`: what holds where no flag is given: shown with its origin, and changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from tarragon.cli.options.settings import Command

FORMS = ("table", "json", "yaml")


class _Part(Command):
    """Its variables have the name of the whole: TARRAGON_CONFIG_VIEW_OUTPUT. What it shows must not depend on them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Command.parse_args(self, ctx, args)

    def name_variable(self, param: click.Parameter) -> None:
        """That of click, which has both names in it."""


@click.group("config")
def command() -> None:
    """Show and keep what holds where a flag is not given.

    What counts first: the flag, then its variable (TARRAGON_RUN_TIMEOUT), then the file, then the default.
    KEY is a flag behind the name of its command (run.timeout), or one that all commands have (namespace).
    """


@command.command("view", cls=_Part)
@click.option("--show-origin", "with_origin", is_flag=True, help="also from where each value comes")
@click.option("--all", "everything", is_flag=True, help="also what is at its default")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table", help="table by default")
@click.pass_context
def view(ctx: click.Context, *, with_origin: bool, everything: bool, form: str) -> None:
    """What is set, by variables and in the file."""
    from tarragon.cli.jobview.schema import config
    from tarragon.cli.options.config_file import configuration
    from tarragon.cli.options.config_keys import settings
    from tarragon.cli.options.formats import TEXTS
    from tarragon.cli.output.words import table

    found = configuration()
    shown = [each for each in settings(ctx.find_root(), found, os.environ) if everything or not each.is_default]
    if form in TEXTS:
        click.echo(TEXTS[form](config(found.path, shown)))
        return
    if not shown:
        click.echo(f"Nothing is set: neither in {found.path} nor by variables", err=True)
        return
    header = ("KEY", "VALUE", "ORIGIN")[: 3 if with_origin else 2]
    rows = [(each.key, _text(each.value), each.origin)[: len(header)] for each in shown]
    for line in table(header, rows):
        click.echo(line)


@command.command("set", cls=_Part)
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_key(ctx: click.Context, key: str, value: str) -> None:
    """Keep VALUE for KEY in the file: tarragon config set run.timeout 2h."""
    from tarragon.cli.options.config_file import configuration
    from tarragon.cli.options.config_keys import checked

    found = configuration()
    made = checked(ctx.find_root(), found, key, value)
    written = _nested({**found.values, key: made})
    _write(found.path, written)
    click.echo(f"{key} set in {found.path}", err=True)


@command.command("unset", cls=_Part)
@click.argument("key")
def unset(key: str) -> None:
    """Take KEY out of the file."""
    from tarragon.cli.options.config_file import configuration, unknown

    found = configuration()
    if key not in found.values:
        raise unknown(found.path, key, list(found.values))
    _write(found.path, _nested({name: value for name, value in found.values.items() if name != key}))
    click.echo(f"{key} unset in {found.path}", err=True)


@command.command("path", cls=_Part)
def path() -> None:
    """Where the file is, or would be: TARRAGON_CONFIG names another one."""
    from tarragon.cli.options.config_file import location

    click.echo(location(os.environ))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _nested(values: Mapping[str, object]) -> Mapping[str, object]:
    """As the file has it: commands as sections."""
    made: dict[str, object] = {}
    for key, value in values.items():
        section, dot, flag = key.partition(".")
        if not dot:
            made[key] = value
            continue
        inner = made.setdefault(section, {})
        if isinstance(inner, dict):
            inner[flag] = value
    return made


def _write(path: Path, values: Mapping[str, object]) -> None:
    """Whole or not at all. Comments are not kept, which whoever wrote some is told."""
    from tarragon.base.errors import TarragonError
    from tarragon.cli.output.yaml_style import dumped

    before = path.read_text() if path.exists() else ""
    if any(line.lstrip().startswith("#") for line in before.splitlines()):
        kept = path.with_name(f"{path.name}.before")
        kept.write_text(before)
        click.echo(f"warning: comments are lost; the file as it was is {kept}", err=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(dumped(values) + "\n" if values else "")
        new.replace(path)
    except OSError as error:
        raise TarragonError(f"can't write {path}", why=error.strerror or str(error)) from error
