"""The rules by which the rest of a job's work is estimated.

In this order: from the job's own report (units left, by its own rate); from what its kind has reported; from finished
jobs of its kind that needed more than it has received (their mean rest); from what it has received. The last is the
rule of least attained service, in powers of two: a job that has run for long is expected to run for long (Tiresias,
NSDI'19).

A report moves a job forward, so it is also a promise: a job that says how little is left must end soon. `with_claim`
keeps the smallest promise. A job that has received more service than that has its reports and rates ignored, and
counts as if it had received `TRUST` times its service: it is behind where it would be if it had reported nothing. So
a job that reports 99 % for ever is put forward for two minutes, or for a tenth of what it had received before. What its
kind has reported is believed in the same way: until the job has received `TRUST` times the work that this implies. A
rate that rises faster than the size is never believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tarragon.scheduling.api.work import (
    DEFAULT_RESTART_SECONDS,
    UNKNOWN_WORK_SECONDS,
    SpeedupCurve,
    SpeedupPrior,
    WorkEstimate,
)
from tarragon.scheduling.estimates.kind_history import MAX_SPREAD, KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord

MIN_REMAINING_SECONDS = 60.0
"""No job is expected to end sooner, in device-seconds: what is nearly done must not be infinitely urgent."""
MAX_REMAINING_SECONDS = 1e12
"""Thirty years on a thousand devices."""
TRUST = 2.0
"""The factor by which a job may exceed the rest that it reported. Rates at a first size are rough."""
TAIL = 0.05
"""After its last step a job may need this part of its service to validate and to save, which no report counts."""
NEW_CLAIM = 0.5
"""A claim replaces the recorded one if it is below this part of it: few writes, and no rest is believed twice over."""
MIN_RESTART_SECONDS = 5.0
"""Also a resize in place costs something, as replicas have to find each other again."""
MAX_RESTART_SECONDS = 1800.0
"""A longer restart was something else, such as a wait for a node."""


_Rates = tuple[tuple[int, float], ...]


def estimate_work(record: WorkRecord, kind: KindHistory, prior: SpeedupPrior) -> WorkEstimate:
    """Estimate the work of a job from its own record and from what its kind has shown."""
    service = record.service(prior)
    is_trusted = record.believed_until is None or service <= record.believed_until
    curve = _curve(kind.expected(prior), record.rates(), kind.rates()) if is_trusted else SpeedupCurve(prior)
    known = _remaining(record, kind, curve, service) if is_trusted else None
    remaining = attained_level(service if is_trusted else service * TRUST, prior) if known is None else known
    return WorkEstimate(
        remaining=min(max(MIN_REMAINING_SECONDS, remaining), MAX_REMAINING_SECONDS),
        curve=curve,
        restart_seconds=_restart_seconds(record),
        is_known=known is not None,
    )


def with_claim(record: WorkRecord, prior: SpeedupPrior) -> WorkRecord:
    """Return the record with what the job's report promises, if that is much less than it has promised before."""
    rest = _reported_rest(record, prior)
    if rest is None:
        return record
    service = record.service(prior)
    allowed = TRUST * max(rest, MIN_REMAINING_SECONDS, TAIL * service)
    before = record.believed_until
    if before is not None and (service > before or allowed > NEW_CLAIM * (before - service)):
        return record
    return replace(record, believed_until=service + allowed)


def is_believed(record: WorkRecord, prior: SpeedupPrior) -> bool:
    """Whether the job has not yet received more service than its reports have promised."""
    return record.believed_until is None or record.service(prior) <= record.believed_until


def attained_level(service: float, prior: SpeedupPrior) -> float:
    """Return the service rounded down to a power of two times what an unknown job is assumed to need."""
    unit = UNKNOWN_WORK_SECONDS * prior.requested * prior.devices
    return unit * float(2 ** math.floor(math.log2(max(service, unit) / unit)))


def _restart_seconds(record: WorkRecord) -> float:
    measured = DEFAULT_RESTART_SECONDS if record.restart_seconds is None else record.restart_seconds
    return min(max(MIN_RESTART_SECONDS, measured), MAX_RESTART_SECONDS)


def _remaining(record: WorkRecord, kind: KindHistory, curve: SpeedupCurve, service: float) -> float | None:
    """Return the rest of a job that is believed; None if neither it nor its kind has shown anything."""
    if record.done is not None and record.total is not None and record.rates():
        return max(0.0, record.total - record.done) / curve.unit_rate
    reported = _rest_by_kind(record, kind, curve, record.service(curve.prior))
    return kind.mean_rest(service) if reported is None else reported


def _reported_rest(record: WorkRecord, prior: SpeedupPrior) -> float | None:
    """Return the rest that the job's own reports imply; None while they do not tell its rate."""
    if record.done is None or record.total is None:
        return None
    curve = _curve(prior, record.rates(), {})
    return max(0.0, record.total - record.done) / curve.unit_rate if curve.rates else None


def _rest_by_kind(record: WorkRecord, kind: KindHistory, curve: SpeedupCurve, service: float) -> float | None:
    """Return the rest of a job whose rate, and perhaps whose total, only others of its kind have shown."""
    total = kind.usual_total() if record.total is None else record.total
    if not curve.rates or total is None:
        return None
    work = total / curve.unit_rate
    return max(0.0, work - service) if service <= TRUST * max(work, MIN_REMAINING_SECONDS) else None


def _curve(prior: SpeedupPrior | SpeedupCurve, own: Mapping[int, float], shared: Mapping[int, float]) -> SpeedupCurve:
    return _known_curve(prior, tuple(own.items()), tuple(shared.items()) if shared else ())


@lru_cache(maxsize=10_000)
def _known_curve(prior: SpeedupPrior | SpeedupCurve, own: _Rates, shared: _Rates) -> SpeedupCurve:
    """Rates are rounded, so most of them are the same as in the last cycle."""
    return SpeedupCurve(prior, _believable(_with_shared(dict(own), dict(shared))))


def _with_shared(own: Mapping[int, float], shared: Mapping[int, float]) -> Mapping[int, float]:
    """Add what others of the kind have shown, unless the job is unlike them."""
    common = own.keys() & shared.keys()
    is_alike = all(own[size] <= MAX_SPREAD * shared[size] and shared[size] <= MAX_SPREAD * own[size] for size in common)
    return {**own, **shared} if is_alike else own


def _believable(rates: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """Return the rates in the order of sizes: never falling, as a larger job need not use all, and never rising faster
    than the size.
    """
    believed: list[tuple[int, float]] = []
    for size, measured in sorted(rates.items()):
        smaller, slower = believed[-1] if believed else (size, measured)
        believed.append((size, min(max(measured, slower), slower * size / smaller)))
    return tuple(believed)
