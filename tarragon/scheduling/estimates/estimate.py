"""The rules by which the rest of a job's work is estimated.

In this order: from the job's own report (units left, by its rate); from finished jobs of its kind that needed more than
it has received (their mean rest); from what it has received. The last is the rule of least attained service, in powers
of two: a job that has run for long is expected to run for long (Tiresias, NSDI'19).

A report moves a job forward only while it is believable. The first usable report claims how much work the job is. Once
the job has received more service than `TRUST` times that, its reports are ignored, and it counts as if it had received
`TRUST` times its service: it is behind where it would be if it had reported nothing. A rate that rises faster than the
size is not believed either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tarragon.scheduling.api.work import (
    DEFAULT_RESTART_SECONDS,
    UNKNOWN_WORK_SECONDS,
    SpeedupCurve,
    SpeedupPrior,
    WorkEstimate,
)
from tarragon.scheduling.estimates.kind_history import KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord

MIN_REMAINING_SECONDS = 60.0
"""No job is expected to end sooner, in device-seconds: what is nearly done must not be infinitely urgent."""
TRUST = 2.0
"""The factor by which a job may exceed the work that its first report implied. Rates at a first size are rough."""
MAX_RESTART_SECONDS = 1800.0
"""A longer restart was something else, such as a wait for a node."""


def estimate_work(record: WorkRecord, kind: KindHistory, prior: SpeedupPrior) -> WorkEstimate:
    """Estimate the work of a job from its own record and from what its kind has shown."""
    curve = SpeedupCurve(prior, _believable({**record.rates(), **kind.rates()}))
    return WorkEstimate(
        remaining=max(MIN_REMAINING_SECONDS, _remaining(record, kind, curve)),
        curve=curve,
        restart_seconds=min(record.restart_seconds or DEFAULT_RESTART_SECONDS, MAX_RESTART_SECONDS),
    )


def with_claim(record: WorkRecord, prior: SpeedupPrior) -> WorkRecord:
    """Return the record with the work that its first usable report claims: a rate and a total are needed for it."""
    if record.claimed_work is not None or record.done is None or record.total is None:
        return record
    curve = SpeedupCurve(prior, _believable(record.rates()))
    if not curve.rates:
        return record
    return replace(record, claimed_work=record.service(prior) + _left(record.done, record.total) / curve.unit_rate)


def is_believed(record: WorkRecord, prior: SpeedupPrior) -> bool:
    """Whether the job has not yet received much more service than its first report implied."""
    return record.claimed_work is None or record.service(prior) <= TRUST * max(
        record.claimed_work, MIN_REMAINING_SECONDS
    )


def attained_level(service: float, prior: SpeedupPrior) -> float:
    """Return the service rounded down to a power of two times what an unknown job is assumed to need."""
    unit = UNKNOWN_WORK_SECONDS * prior.requested * prior.devices
    return unit * float(2 ** math.floor(math.log2(max(service, unit) / unit)))


def _remaining(record: WorkRecord, kind: KindHistory, curve: SpeedupCurve) -> float:
    prior = curve.prior
    service = record.service(prior)
    if not is_believed(record, prior):
        return attained_level(service * TRUST, prior)
    total = kind.usual_total() if record.total is None else record.total
    if curve.rates and total is not None:
        return _left(record.done or 0.0, total) / curve.unit_rate
    rest = kind.mean_rest(service)
    return attained_level(service, prior) if rest is None else rest


def _left(done: float, total: float) -> float:
    return max(0.0, total - done)


def _believable(rates: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """Return the rates in the order of sizes: never falling, as a larger job need not use all, and never rising faster
    than the size.
    """
    believed: list[tuple[int, float]] = []
    for size, measured in sorted(rates.items()):
        smaller, slower = believed[-1] if believed else (size, measured)
        believed.append((size, min(max(measured, slower), slower * size / smaller)))
    return tuple(believed)
