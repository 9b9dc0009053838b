"""The settings of the operator process; the command line fills them from flags and environment variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarragon.client.leader_election import Claim
from tarragon.operator.manager.health import Address
from tarragon.operator.manager.operator import Options

GRACE_SECONDS = 20.0
"""Less than the pod's termination grace period of 30 s, so that the lease is released before the pod is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Without a claim there is no leader election; without an address there are no HTTP endpoints."""

    options: Options = field(default_factory=Options)
    claim: Claim | None = None
    listen: Address | None = None
    grace: float = GRACE_SECONDS
    """Seconds that writes in progress may take after a stop request."""
    adopt: bool = False
    """Also manage jobs of another running operator. The user must make sure that the other operator stops."""
