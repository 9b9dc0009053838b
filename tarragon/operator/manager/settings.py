"""The settings of the operator process; the command line fills them from flags and environment variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarragon.client.leader_election import LeaseLock
from tarragon.kube.meta import Key
from tarragon.operator.manager.health import ListenAddress
from tarragon.operator.manager.operator import OperatorOptions

SHUTDOWN_SECONDS = 20.0
"""Less than the pod's termination grace period of 30 s, so that the lease is released before the pod is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Without a claim there is no leader election; without an address there are no HTTP endpoints."""

    options: OperatorOptions = field(default_factory=OperatorOptions)
    lease_claim: LeaseLock | None = None
    listen: ListenAddress | None = None
    shutdown_seconds: float = SHUTDOWN_SECONDS
    """Seconds that writes in progress may take after a stop request."""
    own_pod: Key | None = None
    """The operator's own pod, whose image takes the place of `OperatorSettings.own_image`; None for no such pod."""
    adopt: bool = False
    """Also manage jobs of another running operator. The user must make sure that the other operator stops."""
