"""The options of leader election."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.operator import process_environment
from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import option_group

if TYPE_CHECKING:
    from tarragon.client.leader_election import LeaderElectionConfig, LeaseLock

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionOptions:
    """The options as given. Raises UsageError if the times would allow two leaders at once."""

    leader_elect: bool
    lease_namespace: str | None
    lease_name: str
    identity: str | None
    lease_duration: float
    renew_deadline: float
    retry_period: float

    def __post_init__(self) -> None:
        if fault := self._terms().validation_error:
            raise click.UsageError(fault)

    def claim(self, environment: Mapping[str, str], namespace: str) -> LeaseLock:
        """Build the claim to the Lease. `namespace` is the operator's own."""
        from tarragon.client.leader_election import LeaseLock
        from tarragon.kube.meta import Key

        return LeaseLock(
            key=Key(
                self.lease_namespace or process_environment.lease_namespace(environment) or namespace, self.lease_name
            ),
            identity=self.identity or process_environment.identity(environment),
            config=self._terms(),
        )

    def _terms(self) -> LeaderElectionConfig:
        from tarragon.client.leader_election import LeaderElectionConfig

        return LeaderElectionConfig(
            lease_duration=self.lease_duration, renew_deadline=self.renew_deadline, retry_period=self.retry_period
        )


_OPTIONS = (
    click.option(
        "--leader-elect/--no-leader-elect",
        default=True,
        show_default=True,
        help="use a Lease to elect a leader among several operators",
    ),
    click.option(
        "--lease-namespace", metavar="NAMESPACE", help="namespace of the Lease; the operator's own by default"
    ),
    click.option("--lease-name", metavar="NAME", default="tarragon", show_default=True, help="name of the Lease"),
    click.option("--identity", metavar="NAME", help="holder identity in the Lease; must be unique"),
    seconds_option("--lease-duration", 15.0, "time without renewal after which another operator may take the Lease"),
    seconds_option("--renew-deadline", 10.0, "time after which a leader that could not renew its Lease exits"),
    seconds_option("--retry-period", 2.0, "time between attempts to acquire or renew the Lease"),
)


def leader_election_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options; the command receives them as `election`."""
    return reduce(
        lambda below, option: option(below),
        reversed(_OPTIONS),
        option_group("election", LeaderElectionOptions)(command),
    )
