"""The options about who starts first, of all commands that bring an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.durations import seconds_option
from tarragon.scheduling.names import DEFAULT, NAMES

if TYPE_CHECKING:
    from tarragon.scheduling.rules import Rules

P = ParamSpec("P")


_OPTIONS = (
    click.option(
        "--policy",
        type=click.Choice(NAMES),
        default=DEFAULT,
        show_default=True,
        help="who starts first, and who makes room for whom",
    ),
    click.option(
        "--queues",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="fair shares, preemption, and each namespace's weight and quota; read anew when it changes",
    ),
    seconds_option("--aged", 30.0, "after so long a wait places are kept for a job, or others shrink for it"),
    seconds_option("--idle", 60.0, "jobs grow beyond what they wish when nothing has changed for so long"),
    seconds_option("--cool-down", 60.0, "a job whose size was changed keeps it for so long"),
)


def ordering_options(command: Callable[P, None]) -> Callable[P, None]:
    """`policy`, `queues`, `aged`, `idle` and `cool_down`."""
    return reduce(lambda below, option: option(below), reversed(_OPTIONS), command)


def ruled(queues: Path | None, aged: float, idle: float, cool_down: float) -> Callable[[], Rules]:
    """What says, whenever it is asked, by which rules to decide. Raises BadQueues."""
    from tarragon.operator.ruled import RulesInFile
    from tarragon.scheduling.rules import Rules

    # A cluster in this process leaves the folder that the name was meant in.
    base = Rules(aged=aged, idle=idle, cool_down=cool_down)
    return (lambda: base) if queues is None else RulesInFile(queues.absolute(), base)
