"""Arithmetic with times from untrusted objects, which may exceed the range of datetime."""

from __future__ import annotations

import datetime as dt

MIN_TIME = dt.datetime.min.replace(tzinfo=dt.UTC)
MAX_TIME = dt.datetime.max.replace(tzinfo=dt.UTC)


def add_seconds(start: dt.datetime, seconds: float) -> dt.datetime:
    """`start` plus that many seconds, which may be negative; MIN_TIME or MAX_TIME if the result is out of range."""
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        return MAX_TIME if seconds > 0 else MIN_TIME
