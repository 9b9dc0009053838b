"""The options about who starts first, of all commands that bring an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import gathered
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES

if TYPE_CHECKING:
    from tarragon.operator.manager.operator import Options
    from tarragon.plan.objects.settings import Settings
    from tarragon.scheduling.api.rules import Rules

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """As the command line has it."""

    policy: str
    queues: Path | None
    aged: float
    idle: float
    cool_down: float

    def options(self, settings: Settings, published_in: str) -> Options:
        """Of an operator that decides like this, and tells it there. Raises BadQueues."""
        from tarragon.operator.manager.operator import Options
        from tarragon.scheduling.policies import POLICIES

        policy = POLICIES[self.policy]
        return Options(settings=settings, policy=policy, rules=self.rules(), published_in=published_in)

    def rules(self) -> Callable[[], Rules]:
        """What says, whenever it is asked, by which rules to decide. Raises BadQueues."""
        from tarragon.operator.scheduler.config.reload import RulesInFile
        from tarragon.scheduling.api.rules import Rules

        base = Rules(aged=self.aged, idle=self.idle, cool_down=self.cool_down)
        # A cluster in this process leaves the folder that the name was meant in.
        return (lambda: base) if self.queues is None else RulesInFile(self.queues.absolute(), base)


_OPTIONS = (
    click.option(
        "--policy",
        type=click.Choice(POLICY_NAMES),
        default=DEFAULT_POLICY,
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
    """Together as `ordering`."""
    return reduce(lambda below, option: option(below), reversed(_OPTIONS), gathered("ordering", Ordering)(command))
