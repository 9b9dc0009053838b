"""Arithmetic with times from untrusted objects, which may exceed the range of datetime."""

from __future__ import annotations

import datetime as dt

FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
LAST = dt.datetime.max.replace(tzinfo=dt.UTC)


def later(start: dt.datetime, seconds: float) -> dt.datetime:
    """`start` plus that many seconds, which may be negative; FIRST or LAST if the result is out of range."""
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        return LAST if seconds > 0 else FIRST
