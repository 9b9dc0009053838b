"""How the operator's process runs, as one frozen value; the command line fills it from flags and variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarragon.client.leader_election import Claim
from tarragon.operator.manager.health import Address
from tarragon.operator.manager.operator import Options

GRACE_SECONDS = 20.0
"""Kubernetes kills a pod 30 s after it has asked it to end: the lease must be given back before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Without a claim it leads at once, alone; without an address nobody can ask how it is."""

    options: Options = field(default_factory=Options)
    claim: Claim | None = None
    listen: Address | None = None
    grace: float = GRACE_SECONDS
    """Seconds for the writes that have begun when it is told to end."""
    adopt: bool = False
    """Keep jobs that another operator keeps, too. Whoever says so sees to it that the other one stops."""
