"""The scheduling options of the commands that run an operator: `operator` and `up`."""

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
    """The options as given."""

    policy: str
    queues: Path | None
    aged: float
    idle: float
    cool_down: float

    def options(self, settings: Settings, published_in: str) -> Options:
        """Build the operator's options. It publishes its configuration in `published_in`. Raises BadQueues."""
        from tarragon.operator.manager.operator import Options
        from tarragon.scheduling.policies import POLICIES

        policy = POLICIES[self.policy]
        return Options(settings=settings, policy=policy, rules=self.rules(), published_in=published_in)

    def rules(self) -> Callable[[], Rules]:
        """Return a function that returns the current rules; it reloads the file of `--queues`. Raises BadQueues."""
        from tarragon.operator.scheduler.config.reload import RulesInFile
        from tarragon.scheduling.api.rules import Rules

        base = Rules(aged=self.aged, idle=self.idle, cool_down=self.cool_down)
        # The embedded cluster changes the working directory.
        return (lambda: base) if self.queues is None else RulesInFile(self.queues.absolute(), base)


_OPTIONS = (
    click.option(
        "--policy",
        type=click.Choice(POLICY_NAMES),
        default=DEFAULT_POLICY,
        show_default=True,
        help="scheduling policy: the order of the queue, backfill and preemption",
    ),
    click.option(
        "--queues",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="configuration of fair share, preemption, and namespace weights and quotas; reloaded on change",
    ),
    seconds_option(
        "--aged", 30.0, "wait after which a job is starving: resources are reserved for it, and elastic jobs shrink"
    ),
    seconds_option("--idle", 60.0, "time without changes after which elastic jobs grow beyond their requested size"),
    seconds_option("--cool-down", 60.0, "minimum time between two resizes of a job"),
)


def ordering_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options; the command receives them as `ordering`."""
    return reduce(lambda below, option: option(below), reversed(_OPTIONS), gathered("ordering", Ordering)(command))
