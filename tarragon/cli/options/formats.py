"""The output formats of `-o`: tables for people; names, JSON and YAML for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from tarragon.base.escaping import escaped
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.prose import prose_rows, width_of
from tarragon.cli.output.style import STATES, painter
from tarragon.cli.output.words import aligned

if TYPE_CHECKING:
    from tarragon.kube.meta import JsonObject

OUTPUT_FORMATS = ("table", "wide", "name", "json", "yaml")


def json_text(value: JsonObject) -> str:
    """Formats a value as JSON. Control characters occur only in strings, where `escaped` writes them as JSON does."""
    import json

    return escaped(json.dumps(value, indent=2, ensure_ascii=False))


def yaml_text(value: JsonObject) -> str:
    from tarragon.cli.output.yaml_style import yaml_dump

    return yaml_dump(value)


FORMATTERS: Mapping[str, Callable[[JsonObject], str]] = MappingProxyType({"json": json_text, "yaml": yaml_text})


def without_managed_fields(value: JsonObject) -> JsonObject:
    """Removes managedFields, as `kubectl get` does by default."""
    metadata = value.get("metadata", {})
    return {**value, "metadata": {name: each for name, each in metadata.items() if name != "managedFields"}}


def list_object(items: Sequence[JsonObject]) -> JsonObject:
    """Wraps objects in a `v1` List, like `kubectl get -o json`, so that the same scripts read both."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(items)}


def print_table(rows: Sequence[Sequence[str]], settings: GlobalOptions, *, shown: int | None = None) -> None:
    """Prints rows as a table. `shown` limits it to the last rows; all rows count for the widths of the columns.

    States are coloured. On a terminal, lines are cut at its edge.
    """
    for line in table_lines(rows, settings, width_of(sys.stdout))[-(shown or len(rows)) :]:
        click.echo(line, color=True)


def table_lines(rows: Sequence[Sequence[str]], settings: GlobalOptions, width: int) -> list[str]:
    """Returns the lines of a table, cut at `width`."""
    paint = painter(colors=settings.terminal().colors_out)
    result = []
    for cells in aligned(rows):
        before = "   ".join(cells[:-1])
        last = _cut(cells[-1].rstrip(), width - len(before) - 3)
        result.append("   ".join([*(_painted(cell, paint) for cell in cells[:-1]), last]).rstrip())
    return result


def print_lines(lines: Iterable[str]) -> None:
    """Prints sentences on stdout. On a terminal, long lines are wrapped between words."""
    for row in prose_rows(lines, sys.stdout):
        click.echo(row, color=True)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _painted(cell: str, paint: Callable[[str, str], str]) -> str:
    word = cell.rstrip()
    return paint(word, STATES[word]) + cell[len(word) :] if word in STATES else cell
