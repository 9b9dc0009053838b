"""`--dry-run` and its `-o`, which `run` and `submit` have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import click

from tarragon.cli.jobview.target import Target
from tarragon.cli.manifest.loading import Loaded

P = ParamSpec("P")
T = TypeVar("T")


def trial_options(command: Callable[P, T]) -> Callable[P, T]:
    """`dry_run` and `form`; None where they were not given."""
    form = click.option(
        "-o", "--output", "form", type=click.Choice(("yaml", "json", "name")), help="with --dry-run: yaml by default"
    )
    trial = click.option(
        "--dry-run",
        type=click.Choice(("client", "server")),
        help="make nothing, print all that would be: pods, Services, TF_CONFIG; `server` asks its admission, too",
    )
    return trial(form(command))


def require_trial(dry_run: str | None, form: str | None) -> None:
    """Raises UsageError for a form of nothing."""
    if form is not None and dry_run is None:
        raise click.UsageError("-o is the form of what --dry-run prints")


def show_trial(where: Target, loaded: Sequence[Loaded], dry_run: str, form: str | None) -> None:
    """On stdout; what must be said about it on stderr."""
    from tarragon.base.clock import SystemClock
    from tarragon.cli.manifest import dry_run as trial
    from tarragon.cli.options.formats import as_list, json_text, yaml_text

    def note(text: str) -> None:
        click.echo(text, err=True)

    for text in (text for each in loaded for text in each.notes):
        note(text)
    if dry_run == "client":
        made = [trial.by_client(each) for each in loaded]
    else:
        clock = SystemClock()
        made = [asyncio.run(trial.by_server(where, each, clock, note)) for each in loaded]
        asyncio.run(trial.missing_for(where, loaded, clock, note))
    if form == "name":
        for each in made:
            click.echo("\n".join(trial.names(each)))
        return
    objects = [body for each in made for body in trial.shown(each)]
    click.echo(json_text(as_list(objects)) if form == "json" else "\n---\n".join(map(yaml_text, objects)))
    note(f"Nothing was made on {where.name}: this is a dry run by the {dry_run}.")
