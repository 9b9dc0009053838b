"""The scheduling options of the commands that run an operator: `operator` and `up`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import option_group
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES

if TYPE_CHECKING:
    from tarragon.operator.manager.operator import OperatorOptions
    from tarragon.plan.objects.settings import OperatorSettings
    from tarragon.scheduling.api.rules import SchedulingRules

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingOptions:
    """The options as given."""

    policy: str
    queues: Path | None
    aged: float
    idle: float
    cool_down: float

    def operator_options(self, settings: OperatorSettings, published_in: str) -> OperatorOptions:
        """Build the operator's options. It publishes its configuration in `published_in`. Raises InvalidQueuesFile."""
        from tarragon.operator.manager.operator import OperatorOptions
        from tarragon.scheduling.policies import POLICIES

        policy = POLICIES[self.policy]
        return OperatorOptions(settings=settings, policy=policy, rules=self.rules(), publish_namespace=published_in)

    def rules(self) -> Callable[[], SchedulingRules]:
        """Return a function that returns the current rules and reloads `--queues`. Raises InvalidQueuesFile."""
        from tarragon.operator.scheduler.config.reload import ReloadingRules
        from tarragon.scheduling.api.rules import SchedulingRules

        base = SchedulingRules(starvation_seconds=self.aged, idle_seconds=self.idle, cool_down_seconds=self.cool_down)
        # The embedded cluster changes the working directory.
        return (lambda: base) if self.queues is None else ReloadingRules(self.queues.absolute(), base)


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
    seconds_option("--aged", 30.0, "wait after which elastic jobs shrink for a job (policies dragon and elastic)"),
    seconds_option(
        "--idle", 60.0, "time without changes after which jobs grow beyond their requested size (policy dragon)"
    ),
    seconds_option("--cool-down", 60.0, "time for which a resized job does not grow again on its own"),
)


def scheduling_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options; the command receives them as `scheduling`."""
    return reduce(
        lambda below, option: option(below), reversed(_OPTIONS), option_group("scheduling", SchedulingOptions)(command)
    )
