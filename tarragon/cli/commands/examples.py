"""`tarragon examples`: lists the examples, or writes them into a folder."""

from __future__ import annotations

from pathlib import Path

import click

from tarragon.cli.options.settings import TarragonCommand

FIRST = Path("tensorflow/ps.yaml")
"""The example to begin with."""


@click.command("examples", cls=TarragonCommand)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--force", is_flag=True, help="overwrite files of a previous call")
def command(*, folder: Path | None, force: bool) -> None:
    """List the examples, or write them into DIR, to be run and changed."""
    from tarragon.cli.bundled.examples import manifests, write_examples
    from tarragon.cli.output.invocation import current_invocation
    from tarragon.cli.output.words import table

    prompt = current_invocation()
    if folder is None:
        for line in table(("EXAMPLE", "ABOUT"), [(str(path), about) for path, about in manifests()]):
            click.echo(line)
        click.echo(f"\nTo write them into a folder: {prompt} examples examples")
        return
    write_examples(folder, replace=force)
    click.echo(f"Written to {folder}; the README in each folder says what its examples show.")
    click.echo(f"  validate  {prompt} validate {folder / FIRST}")
    click.echo(f"  run       {prompt} run {folder / FIRST}")
