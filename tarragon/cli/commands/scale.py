"""`tarragon scale`: changes how many replicas a job wishes for."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import choice, choice_options
from tarragon.cli.options.arguments import patience_options, replicas, waited
from tarragon.cli.options.settings import Command, Settings

_NUMBER = click.IntRange(0, 100_000)


@click.command("scale", cls=Command)
@choice_options
@click.option("--workers", type=_NUMBER, metavar="N", help="so many workers: --replicas worker=N")
@click.option("--replicas", "others", type=replicas, multiple=True, metavar="TYPE=N", help="so many of a type: ps=2")
@click.option("--min", "least", type=click.IntRange(1), metavar="N", help="of an elastic job: never fewer workers")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="of an elastic job: never more workers")
@click.option("--restart", "by_restart", is_flag=True, help="start all replicas again where it can't grow otherwise")
@patience_options("--wait", "return when it runs with that many")
@click.pass_obj
def command(
    settings: Settings,
    *,
    names: Sequence[str],
    labels: str,
    everything: bool,
    workers: int | None,
    others: Sequence[tuple[str, int]],
    least: int | None,
    most: int | None,
    by_restart: bool,
    waits: bool,
    limit: float | None,
) -> int:
    """Change how many replicas a job wishes for. JOB as in `get`.

    Shrinking works always, growing while it runs if it is elastic. Any other job keeps its size while it runs;
    --restart starts all of its replicas again. A job with a list of replicas (2017, 2018) has the number changed in
    its list.

    \b
    Exit codes: 0 done, or it was so before; 1 it would be in vain; 2 no job of that size makes sense;
                101 not within --timeout; 102 there was none of a name
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_all
    from tarragon.cli.jobs.scaling import Wish, scaling
    from tarragon.cli.targets.resolving import target
    from tarragon.job.model import ReplicaType

    given = [*(((ReplicaType.WORKER.value, workers),) if workers is not None else ()), *others]
    if not given and least is None and most is None:
        raise click.UsageError("say how many: --workers N, --replicas TYPE=N, --min N or --max N")
    if len({name for name, _ in given}) < len(given):
        raise click.UsageError("a type of replicas is given two numbers")
    wish = Wish(
        replicas={ReplicaType(name): number for name, number in given}, least=least, most=most, by_restart=by_restart
    )
    wanted = choice(names, labels, everything=everything)
    patience = waited(waits=waits, limit=limit)
    return asyncio.run(edit_all(target(settings), wanted, scaling(wish), SystemClock(), patience))
