"""Arithmetic with times that somebody else has written: the calendar ends, and an integer of 64 bits goes beyond it."""

from __future__ import annotations

import datetime as dt

FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
LAST = dt.datetime.max.replace(tzinfo=dt.UTC)


def later(start: dt.datetime, seconds: float) -> dt.datetime:
    """`start` moved by that many seconds, negative ones back; FIRST or LAST where the calendar ends before."""
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        return LAST if seconds > 0 else FIRST
