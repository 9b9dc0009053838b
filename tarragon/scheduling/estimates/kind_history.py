"""What jobs of one kind have shown: those of one owner and template learn from each other."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

from tarragon.scheduling.api.work import SpeedupCurve, SpeedupPrior
from tarragon.scheduling.estimates.work_record import WorkRecord

MAX_SPREAD = 3.0
"""Rates of one size that differ by a larger factor are not those of equal work: nodes and locality explain less."""
MIN_ALIKE = 3
"""So many finished jobs have to show what a change of size brings until others are expected to be like them."""
MAX_FINISHED = 300
"""Of older jobs less can be learned: only so many of the latest finished jobs of a kind count."""


_Rate = tuple[float, str]
"""A rate and the job that has it."""


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
        self._gains: tuple[tuple[int, float], ...] = ()
        """The speed by size relative to the smallest one, as finished jobs have shown; empty if too few have."""
        self._expected: dict[SpeedupPrior, SpeedupCurve] = {}
        """What `expected` has returned."""
        self._extremes: dict[int, tuple[_Rate, _Rate]] | None = None
        """The lowest and the highest rate by size; None while they have to be computed."""
        self._unlike: tuple[int, str, str] | None = None
        """A size, and two jobs whose rates at it are not those of equal work; None if none are known."""
        self._shared: Mapping[int, float] | None = None
        """What `rates` returns; None while it has to be computed."""

    def record(self, job: str, record: WorkRecord) -> None:
        """Learn the rates of a job that runs or has finished."""
        rates = record.rates()
        if rates and self._rates.get(job) != rates:
            before, self._rates[job] = self._rates.get(job, {}), rates
            self._update(job, before, rates)
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
            if not self._is_still_unlike():
                self._unlike = None

    def finish(self, job: str, work: float) -> None:
        """Record the service that a job needed until it succeeded."""
        self.revision += 1
        self._finished.append((job, work))
        insort(self._works, work)
        has_several_sizes = len(self._rates.get(job, {})) > 1
        if len(self._finished) > MAX_FINISHED:
            oldest, its_work = self._finished.pop(0)
            self._works.remove(its_work)
            has_several_sizes |= len(self._rates.get(oldest, {})) > 1
            self.forget(oldest)
        self._rests = [0.0]
        for each in reversed(self._works):
            self._rests.append(self._rests[-1] + each)
        self._rests.reverse()
        if has_several_sizes:
            self._learn_gains()

    def expected(self, prior: SpeedupPrior) -> SpeedupPrior | SpeedupCurve:
        """Return the speed-up to expect of a job of this kind: what its finished jobs have gained by changes of their
        size. That can be compared also where jobs count unlike units.
        """
        if not self._gains:
            return prior
        if prior not in self._expected:
            self._expected[prior] = SpeedupCurve(prior, self._gains)
        return self._expected[prior]

    def rates(self) -> Mapping[int, float]:
        """Return the best rate by size of any job of the kind: nothing but the work itself makes a job faster.

        Empty if the jobs do not do the same work: if they count other units, or are otherwise unlike.
        """
        if self._shared is None:
            self._shared = self._alike()
        return self._shared

    def _alike(self) -> Mapping[int, float]:
        """The best rate by size, or nothing as soon as two jobs are found to be unlike."""
        if self._extremes is None and self._unlike is None:
            self._compare_all()
        if self._unlike is not None or self._extremes is None:
            self._extremes = None
            return {}
        return {size: fastest for size, (_, (fastest, _)) in self._extremes.items()}

    def _compare_all(self) -> None:
        self._extremes = {}
        for job, rates in self._rates.items():
            self._widen(job, rates)
            if self._unlike is not None:
                return

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

    def _update(self, job: str, before: Mapping[int, float], rates: Mapping[int, float]) -> None:
        """Replace the rates of a job. Comparing all jobs is needed only if it had one of the extremes, or was one of
        two that are unlike.
        """
        if self._is_still_unlike():
            return
        self._unlike = None
        if self._extremes is not None:
            if any((rate, job) in self._extremes[size] for size, rate in before.items() if rate != rates.get(size)):
                self._extremes = None
            else:
                self._widen(job, rates)
        shown, self._shared = self._shared, self._alike()
        if self._shared != shown:
            self.revision += 1

    def _is_still_unlike(self) -> bool:
        if self._unlike is None:
            return False
        size, *jobs = self._unlike
        slow, fast = sorted(self._rates.get(job, {}).get(size, 0.0) for job in jobs)
        return 0 < slow * MAX_SPREAD < fast

    def _learn_gains(self) -> None:
        """Chain the medians of what jobs have gained from one size to their next one, where enough have."""
        by_step: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        for job, _ in self._finished:
            for (smaller, slow), (larger, fast) in pairwise(sorted(self._rates.get(job, {}).items())):
                by_step[smaller, larger].append(fast / slow)
        shown = {step: gains for step, gains in by_step.items() if len(gains) >= MIN_ALIKE}
        smallest = min(shown)[0] if shown else 0
        speeds = {smallest: 1.0} if shown else {}
        for size in sorted({larger for _, larger in shown}):
            steps = [(speeds[step[0]], gains) for step, gains in shown.items() if step[1] == size and step[0] in speeds]
            if steps:
                found = round(median(speed * gain for speed, gains in steps for gain in gains), 2)
                # Never falling, as a larger job need not use all, and never rising faster than the size.
                speeds[size] = min(max(found, *speeds.values()), size / smallest)
        gains = tuple(speeds.items())
        if gains != self._gains:
            self._gains = gains
            self._expected.clear()

    def _widen(self, job: str, rates: Mapping[int, float]) -> None:
        """Count the rates of one more job, until one of them is not that of equal work."""
        extremes = self._extremes = {} if self._extremes is None else self._extremes
        for size, rate in rates.items():
            mine = rate, job
            slowest, fastest = extremes.get(size, (mine, mine))
            extremes[size] = slowest, fastest = min(mine, slowest), max(mine, fastest)
            if fastest[0] > MAX_SPREAD * slowest[0]:
                self._unlike = size, slowest[1], fastest[1]
                return
