"""`--dry-run` and its `-o`, for `run` and `submit`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import click

from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.file_command import DRY_RUN, DRY_RUNS
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.resolving import resolve_target

P = ParamSpec("P")
T = TypeVar("T")


def dry_run_options(command: Callable[P, T]) -> Callable[P, T]:
    """Adds `--dry-run` (passed as `dry_run`) and `-o` (passed as `form`); None if not given."""
    form = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(("yaml", "json", "name")),
        help="output format of --dry-run; yaml by default",
    )
    trial = click.option(
        DRY_RUN,
        type=click.Choice(DRY_RUNS),
        help="print the objects that would be created: pods, Services, TF_CONFIG; of a script, its manifest; "
        "`server` asks the API server too; "
        "without a value, client",
    )
    return trial(form(command))


def require_dry_run(dry_run: str | None, form: str | None) -> None:
    """Raises UsageError if an output format is given without --dry-run."""
    if form is not None and dry_run is None:
        raise click.UsageError("-o requires --dry-run")


def resolve_submission_target(settings: GlobalOptions, dry_run: str | None) -> ClusterTarget:
    """Returns the cluster that the settings name. A dry run by the client needs no kubeconfig."""
    if settings.is_local or dry_run != DRY_RUNS[0]:
        return resolve_target(settings)
    from tarragon.cli.targets.foreign import UnconfiguredTarget
    from tarragon.client.http.config import NoKubeconfig

    try:
        return resolve_target(settings)
    except NoKubeconfig:
        return UnconfiguredTarget(settings)


def print_dry_run(target: ClusterTarget, loaded: Sequence[LoadedJob], dry_run: str, form: str | None) -> None:
    """Prints the objects on stdout, and notes on stderr."""
    from tarragon.base.clock import SystemClock
    from tarragon.cli.manifest import dry_run as trial
    from tarragon.cli.options.formats import json_text, list_object, yaml_text

    def note(text: str) -> None:
        print_note(text)

    for text in (text for each in loaded for text in each.notes):
        note(text)
    if dry_run == "client" and all(each.is_script for each in loaded):
        # What a script's user wants to see and to keep is the manifest, as `kubectl create` prints it.
        trials = [trial.DryRun(each.framework, each.documents) for each in loaded]
    elif dry_run == "client":
        trials = [trial.client_dry_run(each) for each in loaded]
    else:
        clock = SystemClock()
        trials = [asyncio.run(trial.server_dry_run(target, each, clock, note)) for each in loaded]
        asyncio.run(trial.warn_of_missing(target, loaded, clock, note))
    if form == "name":
        for each in trials:
            click.echo("\n".join(trial.object_names(each)))
        return
    objects = [body for each in trials for body in trial.printable_objects(each)]
    click.echo(json_text(list_object(objects)) if form == "json" else "\n---\n".join(map(yaml_text, objects)))
    note(f"Nothing was created on {target.name} ({dry_run} dry run).")
