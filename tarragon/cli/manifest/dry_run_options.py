"""`--dry-run` and its `-o`, for `run` and `submit`."""

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
    """Adds `--dry-run` (passed as `dry_run`) and `-o` (passed as `form`); None if not given."""
    form = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(("yaml", "json", "name")),
        help="output format of --dry-run; yaml by default",
    )
    trial = click.option(
        "--dry-run",
        type=click.Choice(("client", "server")),
        help="print the objects that would be created: pods, Services, TF_CONFIG; `server` asks the API server too",
    )
    return trial(form(command))


def require_trial(dry_run: str | None, form: str | None) -> None:
    """Raises UsageError if an output format is given without --dry-run."""
    if form is not None and dry_run is None:
        raise click.UsageError("-o requires --dry-run")


def show_trial(where: Target, loaded: Sequence[Loaded], dry_run: str, form: str | None) -> None:
    """Prints the objects on stdout, and notes on stderr."""
    from tarragon.base.clock import SystemClock
    from tarragon.cli.manifest import dry_run as trial
    from tarragon.cli.options.formats import as_list, json_text, yaml_text

    def note(text: str) -> None:
        click.echo(text, err=True)

    for text in (text for each in loaded for text in each.notes):
        note(text)
    if dry_run == "client":
        trials = [trial.by_client(each) for each in loaded]
    else:
        clock = SystemClock()
        trials = [asyncio.run(trial.by_server(where, each, clock, note)) for each in loaded]
        asyncio.run(trial.missing_for(where, loaded, clock, note))
    if form == "name":
        for each in trials:
            click.echo("\n".join(trial.names(each)))
        return
    objects = [body for each in trials for body in trial.shown(each)]
    click.echo(json_text(as_list(objects)) if form == "json" else "\n---\n".join(map(yaml_text, objects)))
    note(f"Nothing was created on {where.name} ({dry_run} dry run).")
