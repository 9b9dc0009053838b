"""What is known about the work of a gang: how much is left, and how much faster it is with more replicas.

Work is measured in *device-seconds*: what one device (a GPU; a replica, if it requests none) does in one second. A
speed-up is relative to one device, too. So works and speed-ups of different gangs can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar

from tarragon.base.resources import Resources

THOUSAND = 1000
"""Requests are in thousandths."""
PRIOR_EXPONENT = 0.85
"""Up to the requested size, the speed-up of n devices is assumed to be n to this power. Measured on the 1,280 jobs of
Pollux' workloads, which request sizes at which they are 50 to 80 % efficient.
"""
PRIOR_EXPONENT_BEYOND = 0.3
"""Beyond the requested size, of which the user knows why it was chosen, more replicas are assumed to help little."""
PRIOR_EXPONENT_BEYOND_ONE = 0.7
"""A gang with one replica was written for one, which says nothing of how much more would help. Its owner has allowed
more. On the Philly trace, nine of ten jobs are of this kind.
"""
DEFAULT_RESTART_SECONDS = 30.0
"""How long a gang makes no progress after a start or resize, until that was measured. Pollux (OSDI'21) took 30 s."""
UNKNOWN_WORK_SECONDS = 1200.0
"""A gang about which nothing is known is assumed to have this much work left for each device that it requests."""


@dataclass(frozen=True, slots=True)
class SpeedupPrior:
    """The speed-up that is assumed for a gang that has not been measured."""

    requested: int
    """The requested number of replicas."""
    devices: float = 1.0
    """The devices of one replica."""

    largest_measured: ClassVar[int] = 0
    """Nothing is measured."""

    def at(self, replicas: float) -> float:
        """Return the assumed speed-up of this many replicas."""
        return _assumed_speedup(self.requested, self.devices, replicas)


@dataclass(frozen=True)
class SpeedupCurve:
    """The speed-up by number of replicas: measured where the gang, or one of its kind, has had that size."""

    prior: SpeedupPrior | SpeedupCurve
    """What is assumed where nothing is measured: what others of the kind have shown, if they have."""
    rates: tuple[tuple[int, float], ...] = ()
    """The measured rates by number of replicas, ascending, in any unit of work per second."""

    @property
    def requested(self) -> int:
        """The requested number of replicas."""
        return self.prior.requested

    @property
    def largest_measured(self) -> int:
        """The largest size that was measured, of the gang or of others of its kind; 0 if none was."""
        return max(self.rates[-1][0] if self.rates else 0, self.prior.largest_measured)

    def at(self, replicas: float) -> float:
        """Return the speed-up of this many replicas."""
        return self._relative(replicas) * self._scale

    @property
    def largest_known(self) -> int | None:
        """The largest size at which the gain of more replicas can be judged; None if the gang itself was not measured.

        A rate at one size says little about one that is several times as large: a gang doubles, and is measured again.
        """
        if not self.rates:
            return None
        return max(2 * self.rates[-1][0], 2 * (self.requested // 2), self.prior.largest_measured)

    @cached_property
    def unit_rate(self) -> float:
        """The rate of one device, in the unit of `rates`; 0 if nothing is measured."""
        return self._relative(1) / self.prior.at(1) if self.rates else 0.0

    @cached_property
    def _scale(self) -> float:
        return 1 / self.unit_rate if self.rates else 1.0

    def _relative(self, replicas: float) -> float:
        """The rate in the unit of `rates`: straight between measured sizes on logarithmic scales; beyond them by the
        prior, but never faster than in proportion to the size.
        """
        rates, prior = self.rates, self.prior
        if not rates:
            return prior.at(replicas)
        first, last = rates[0], rates[-1]
        if replicas <= first[0]:
            return first[1] * prior.at(replicas) / prior.at(first[0])
        for (smaller, slow), (larger, fast) in pairwise(rates):
            if replicas <= larger:
                return slow * float((fast / slow) ** (math.log(replicas / smaller) / math.log(larger / smaller)))
        beyond = last[1] * min(prior.at(replicas) / prior.at(last[0]), replicas / last[0])
        if len(rates) == 1 or last[0] < prior.largest_measured:
            return beyond
        return min(beyond, _continued(rates, replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEstimate:
    """What is left of a gang's work, in device-seconds, and what more replicas would bring."""

    remaining: float
    """The expected rest of the work."""
    curve: SpeedupCurve
    restart_seconds: float = DEFAULT_RESTART_SECONDS
    """How long the gang makes no progress after a resize."""
    is_known: bool = True
    """Whether the rest follows from what the job or its kind has shown; otherwise it is only assumed."""


def devices_of(request: Resources) -> float:
    """Return the devices that one replica requests: its GPUs, or other extended resources; 1 if it requests none."""
    extended = (amount for name, amount in request.items() if "/" in name)
    return max(extended, default=0) / THOUSAND or 1.0


def unknown_work(requested: int, devices: float) -> WorkEstimate:
    """Return the estimate for a gang that has not run and is like no other."""
    return WorkEstimate(
        remaining=UNKNOWN_WORK_SECONDS * requested * devices,
        curve=SpeedupCurve(SpeedupPrior(requested, devices)),
        is_known=False,
    )


@lru_cache(maxsize=10_000)
def _assumed_speedup(requested: int, devices: float, replicas: float) -> float:
    """Cached, as a service is counted with it for each job in each cycle."""
    up_to_request: float = (min(replicas, requested) * devices) ** PRIOR_EXPONENT
    if replicas <= requested:
        return up_to_request
    beyond = PRIOR_EXPONENT_BEYOND_ONE if requested == 1 else PRIOR_EXPONENT_BEYOND
    return up_to_request * float((replicas / requested) ** beyond)


def _continued(rates: Sequence[tuple[int, float]], replicas: float) -> float:
    """Continue the slope of the last two measured sizes, but never faster than in proportion to the size."""
    (smaller, slow), (larger, fast) = rates[-2:]
    slope = min(1.0, max(0.0, math.log(fast / slow) / math.log(larger / smaller)))
    return fast * float((replicas / larger) ** slope)
