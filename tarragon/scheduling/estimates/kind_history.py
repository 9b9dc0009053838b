"""What jobs of one kind have shown: those of one owner and template learn from each other."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping

from tarragon.scheduling.estimates.work_record import WorkRecord

MAX_SPREAD = 3.0
"""Rates of one size that differ by a larger factor are not those of equal work: nodes and locality explain less."""
MAX_FINISHED = 300
"""Of older jobs less can be learned: only so many of the latest finished jobs of a kind count."""


class KindHistory:
    """The rates of all jobs of a kind, and the works of its finished jobs."""

    def __init__(self) -> None:
        self.revision = 0
        """Different after everything that changes what the kind shows."""
        self._rates: dict[str, Mapping[int, float]] = {}
        """By job. The latest finished jobs stay."""
        self._totals: dict[str, float] = {}
        self._usual_total: float | None = None
        """The median of the totals; None while it has to be computed."""
        self._works: list[float] = []
        """The service that finished jobs needed, in device-seconds, sorted."""
        self._rests: list[float] = []
        """The sum of the works from each one to the last."""
        self._finished: list[tuple[str, float]] = []
        """Names and works, in the order in which they ended."""
        self._extremes: dict[int, tuple[float, float]] | None = None
        """The lowest and the highest rate by size; None while they have to be computed."""
        self._shared: Mapping[int, float] | None = None
        """What `rates` returns; None while it has to be computed."""

    def record(self, job: str, record: WorkRecord) -> None:
        """Learn the rates of a job that runs or has finished."""
        rates = record.rates()
        if rates and self._rates.get(job) != rates:
            before, self._rates[job] = self._rates.get(job, {}), rates
            self._update(before, rates)
        if rates and record.total is not None and self._totals.get(job) != record.total:
            self._totals[job] = record.total
            self._usual_total = None
            self.revision += 1

    def forget(self, job: str) -> None:
        """Forget a job that was deleted before its end."""
        self.revision += 1
        if self._totals.pop(job, None) is not None:
            self._usual_total = None
        if self._rates.pop(job, None) is not None:
            self._extremes = self._shared = None

    def finish(self, job: str, work: float) -> None:
        """Record the service that a job needed until it succeeded."""
        self.revision += 1
        self._finished.append((job, work))
        insort(self._works, work)
        if len(self._finished) > MAX_FINISHED:
            oldest, its_work = self._finished.pop(0)
            self._works.remove(its_work)
            self.forget(oldest)
        self._rests = [0.0]
        for each in reversed(self._works):
            self._rests.append(self._rests[-1] + each)
        self._rests.reverse()

    def rates(self) -> Mapping[int, float]:
        """Return the best rate by size of any job of the kind: nothing but the work itself makes a job faster.

        Empty if the jobs do not do the same work: if they count other units, or are otherwise unlike.
        """
        if self._shared is None:
            if self._extremes is None:
                self._extremes = {}
                for rates in self._rates.values():
                    self._widen(rates)
            is_alike = all(fastest <= MAX_SPREAD * slowest for slowest, fastest in self._extremes.values())
            self._shared = {size: fastest for size, (_, fastest) in self._extremes.items()} if is_alike else {}
        return self._shared

    def usual_total(self) -> float | None:
        """Return the units of work that jobs of this kind have in all; None if none has reported any."""
        if self._usual_total is None and self._totals:
            totals = sorted(self._totals.values())
            self._usual_total = totals[len(totals) // 2]
        return self._usual_total

    def mean_rest(self, service: float) -> float | None:
        """Return the mean rest of finished jobs that needed more service than this; None if none did."""
        first = bisect_right(self._works, service)
        count = len(self._works) - first
        return self._rests[first] / count - service if count else None

    def _update(self, before: Mapping[int, float], rates: Mapping[int, float]) -> None:
        """Replace the rates of a job. Comparing all jobs is needed only if it had one of the extremes."""
        self._shared = None
        self.revision += 1
        if self._extremes is None:
            return
        if any(rate != rates.get(size) and rate in self._extremes[size] for size, rate in before.items()):
            self._extremes = None
            return
        self._widen(rates)

    def _widen(self, rates: Mapping[int, float]) -> None:
        extremes = self._extremes = {} if self._extremes is None else self._extremes
        for size, rate in rates.items():
            slowest, fastest = extremes.get(size, (rate, rate))
            extremes[size] = min(rate, slowest), max(rate, fastest)
