"""`tarragon docs`: prints the documentation of this version."""

from __future__ import annotations

import click

from tarragon.cli.options.settings import TarragonCommand


@click.command("docs", cls=TarragonCommand)
@click.argument("page", metavar="[PAGE[#SECTION]]", required=False)
def command(page: str | None) -> None:
    """Print a page of the documentation, or a section of it. Without PAGE, list the pages."""
    from tarragon.cli.bundled.pages import page_titles, read_page
    from tarragon.cli.output.words import table

    if page is None:
        for line in table(("PAGE", "TITLE"), list(page_titles().items())):
            click.echo(line)
        return
    click.echo_via_pager(read_page(page))
