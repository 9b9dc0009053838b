"""What was observed of one job's work. Its status keeps the record, so that it outlives resizes and the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tarragon.job.work import SizeRecord
from tarragon.scheduling.api.work import SpeedupCurve, SpeedupPrior

MIN_MEASURED_SECONDS = 30.0
"""A rate counts once a size has been observed for this long."""
_MIN_RATE, _MAX_RATE = 1e-9, 1e15
"""No training takes 30 years for a step, or counts as many of them in a second. Such a rate is nonsense."""


@dataclass(frozen=True, kw_only=True)
class WorkRecord:
    """The history of a job's work."""

    sizes: Mapping[int, SizeRecord] = field(default_factory=dict)
    """By number of replicas."""
    done: float | None = None
    """The units of work that the job reports as done."""
    total: float | None = None
    """The units of work that it reports to have in all."""
    believed_until: float | None = None
    """The service, in device-seconds, up to which the job's reports are believed. See `estimates/estimate.py`."""
    restart_seconds: float | None = None
    """How long the job took to make progress again after its last resize."""

    def service(self, prior: SpeedupPrior | SpeedupCurve) -> float:
        """Return the service that the job has received, in device-seconds by its prior."""
        return sum(record.seconds * prior.at(size) for size, record in self.sizes.items())

    def device_seconds(self, devices: float) -> float:
        """Return the time for which the job has held devices, which is what it costs others."""
        return sum(record.seconds * size * devices for size, record in self.sizes.items())

    def rates(self) -> Mapping[int, float]:
        """Return the units per second by size, where observed for long enough."""
        return self._rates

    def observed(self, size: int, seconds: float, units: float = 0.0) -> WorkRecord:
        """Return the record with more time at this size, and with what was done in it."""
        return replace(self, sizes=self.sizes_with(size, seconds, units))

    def sizes_with(self, size: int, seconds: float, units: float) -> Mapping[int, SizeRecord]:
        """Return the history by size with more time at this size, and with what was done in it."""
        before = self.sizes.get(size) or SizeRecord()
        after = SizeRecord(before.seconds + max(0.0, seconds), before.units + max(0.0, units))
        return {**self.sizes, size: after}

    @cached_property
    def _rates(self) -> Mapping[int, float]:
        """Computed once: one record is asked several times in each cycle."""
        rates = {
            size: _rounded(record.units / record.seconds)
            for size, record in self.sizes.items()
            if record.seconds >= MIN_MEASURED_SECONDS
        }
        return {size: rate for size, rate in rates.items() if _MIN_RATE <= rate <= _MAX_RATE}


def _rounded(rate: float) -> float:
    """Round to three digits: no rate is known more exactly, and what was computed from an equal one is used again."""
    return float(f"{rate:.3g}")
