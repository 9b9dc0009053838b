"""Runs the packing of a trace for `tarragon simulate --packing`, and shows how much of the GPUs was allocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tarragon.cli.options.formats import json_text, print_table
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.simulation.progress_bar import progress_bar
from tarragon.simulator.packing import READINGS, Packing, pack, read_packing_trace

HEADER = ("POLICY", *(f"AT {reading:.0%}" for reading in READINGS), "REFUSED")


def print_packings(trace: Path, nodes: Path, policies: Sequence[str], seed: int, settings: GlobalOptions) -> None:
    """Print a row for each policy. Raises TarragonError if the files are not tables of tasks and nodes."""
    print_table([HEADER, *(_cells(found) for found in _packings(trace, nodes, policies, seed, settings))], settings)


def print_packings_as_json(
    trace: Path, nodes: Path, policies: Sequence[str], seed: int, settings: GlobalOptions
) -> None:
    """Print an object with an entry for each policy. Raises TarragonError as `print_packings` does."""
    found = _packings(trace, nodes, policies, seed, settings)
    click.echo(json_text({"packings": [_fields(each) for each in found]}))


def _packings(
    trace: Path, nodes: Path, policies: Sequence[str], seed: int, settings: GlobalOptions
) -> Sequence[Packing]:
    found = read_packing_trace(trace, nodes)
    results = []
    for policy in policies:
        with progress_bar(policy, len(found.tasks), settings) as advance:
            results.append(pack(found, policy, seed, advance))
    return results


def _cells(found: Packing) -> Sequence[str]:
    return [found.policy, *(f"{found.allocated[reading]:.2%}" for reading in READINGS), str(found.refused)]


def _fields(found: Packing) -> dict[str, object]:
    return {**asdict(found), "allocated": {f"{reading:g}": found.allocated[reading] for reading in READINGS}}
