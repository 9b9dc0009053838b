"""The options of leader election."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.operator import surroundings
from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import gathered

if TYPE_CHECKING:
    from tarragon.client.leader_election import Claim, Terms

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The options as given. Raises UsageError if the times would allow two leaders at once."""

    leader_elect: bool
    lease_namespace: str | None
    lease_name: str
    identity: str | None
    lease_duration: float
    renew_deadline: float
    retry_period: float

    def __post_init__(self) -> None:
        if fault := self._terms().fault:
            raise click.UsageError(fault)

    def claim(self, environment: Mapping[str, str], namespace: str) -> Claim:
        """Build the claim to the Lease. `namespace` is the operator's own."""
        from tarragon.client.leader_election import Claim
        from tarragon.kube.meta import Key

        return Claim(
            key=Key(self.lease_namespace or surroundings.lease_namespace(environment) or namespace, self.lease_name),
            identity=self.identity or surroundings.identity(environment),
            terms=self._terms(),
        )

    def _terms(self) -> Terms:
        from tarragon.client.leader_election import Terms

        return Terms(duration=self.lease_duration, deadline=self.renew_deadline, retry=self.retry_period)


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


def election_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options; the command receives them as `election`."""
    return reduce(lambda below, option: option(below), reversed(_OPTIONS), gathered("election", Election)(command))
