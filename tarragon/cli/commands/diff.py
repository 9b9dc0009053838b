"""`tarragon diff`: shows what submitting a manifest would change, without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.comparison import ObjectDiff, compare_job, compare_object
from tarragon.cli.manifest.file_command import file_argument
from tarragon.cli.manifest.loading import LoadedJob, Overrides, load
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.output.style import Paint, painter
from tarragon.cli.targets.completion import complete_file
from tarragon.cli.targets.resolving import resolve_target

DIFFERS = 1
CANNOT_COMPARE = 2

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("diff", cls=TarragonCommand)
@click.argument("file", metavar="FILE", required=False, shell_complete=complete_file)
@click.option("-f", "--file", "option", metavar="FILE", shell_complete=complete_file, help="same as FILE")
@click.pass_context
def command(ctx: click.Context, *, file: str | None, option: str | None) -> None:
    """Show what submitting FILE would change, as a unified diff of YAML. FILE may be - or a URL.

    Defaulted fields are not differences. A job stored in another generation of the API is converted before it is
    compared. An object that does not exist is shown as added.

    \b
    Exit codes: 0 no differences, 1 differences,
                2 invalid FILE, or the cluster could not be reached
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = file_argument(file, option)
    try:
        found = _found(ctx.ensure_object(GlobalOptions), name)
    except TarragonError as error:
        # Exit code 1 is reserved for differences.
        error.exit_code = CANNOT_COMPARE
        raise
    _show(found, name, painter(colors=ctx.ensure_object(GlobalOptions).terminal().colors_out))
    if any(each.differs for each in found):
        ctx.exit(DIFFERS)


def _found(settings: GlobalOptions, name: str) -> Sequence[ObjectDiff]:
    target = resolve_target(settings)
    loaded = load(target, settings, name, Overrides())
    for text in loaded.notes:
        print_note(text)
    return asyncio.run(_compared(target, loaded))


def _show(found: Sequence[ObjectDiff], name: str, paint: Paint) -> None:
    for each in found:
        for note in each.notes:
            print_note(note)
        for line in each.lines(name):
            click.echo(_colored(line, paint), color=True)


async def _compared(target: ClusterTarget, loaded: LoadedJob) -> Sequence[ObjectDiff]:
    async with target.reading() as reader:
        others = [await compare_object(reader, resource, body) for resource, body in loaded.companions]
        return [*others, await compare_job(reader, loaded)]


def _colored(line: str, paint: Paint) -> str:
    return paint(line, _COLORS.get(line[:1], "")) if line else line
