"""When a cron job's time has come: the five fields of a crontab line, and the moments that they name.

As robfig/cron reads them, which Kubernetes uses: `*/15`, `1-5`, `10-50/10`, `mon,wed`, `?`, `@daily`, `@every 90s`.
A day has to be of the month and of the week where both start with a `*`; if both are restricted, one is enough.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from types import MappingProxyType

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
_FIELDS = 5
_YEARS = 5
"""How far one looks for the next moment: the 29th of February may be eight years away, and then is told as never."""
_UNITS = MappingProxyType({"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001})


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Of `@every`, only `every`, in seconds, counts."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = False
    every: int = 0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Raises ValueError for what is no schedule."""
        text = text.strip()
        if text.startswith("@every "):
            return cls(every=_seconds(text.removeprefix("@every ")))
        if text.startswith("@") and text not in _MACROS:
            raise ValueError(f"unrecognized descriptor: {text}")
        fields = _MACROS.get(text, text).lower().split()
        if len(fields) != _FIELDS:
            raise ValueError(f"expected exactly 5 fields, found {len(fields)}: {fields}")
        minutes, hours, days, months, weekdays = fields
        return cls(
            minutes=_values(minutes, 0, 59),
            hours=_values(hours, 0, 23),
            days=_values(days, 1, 31),
            months=_values(months, 1, 12, _MONTHS),
            weekdays=frozenset(day % 7 for day in _values(weekdays, 0, 6, _DAYS)),
            any_day=_is_star(days) or _is_star(weekdays),
        )

    def after(self, moment: dt.datetime, zone: dt.tzinfo = dt.UTC) -> dt.datetime | None:
        """The first moment after this one, in UTC; None if there is none in the years to come."""
        if self.every:
            return moment.replace(microsecond=0) + dt.timedelta(seconds=self.every)
        local = moment.astimezone(zone).replace(tzinfo=None)
        last = local.year + _YEARS
        day = local.date()
        begins = (local.hour, local.minute + 1)
        while day.year <= last:
            found = self._on(day, begins, moment, zone) if self._has(day) else None
            if found is not None:
                return found
            day, begins = self._next_day(day), (0, 0)
        return None

    def _has(self, day: dt.date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month and of_week) if self.any_day else (of_month or of_week)

    def _on(self, day: dt.date, begins: tuple[int, int], moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime | None:
        """A time that the clocks skip is left out; one that they repeat is told once."""
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                if (hour, minute) < begins:
                    continue
                wall = dt.datetime.combine(day, dt.time(hour, minute))
                found = wall.replace(tzinfo=zone).astimezone(dt.UTC)
                if found > moment and found.astimezone(zone).replace(tzinfo=None) == wall:
                    return found
        return None

    def _next_day(self, day: dt.date) -> dt.date:
        """Whole months are skipped that have no such day."""
        if day.month not in self.months:
            return (day.replace(day=1) + dt.timedelta(days=32)).replace(day=1)
        return day + dt.timedelta(days=1)


def _is_star(field: str) -> bool:
    return any(part.split("/")[0] in {"*", "?"} for part in field.split(","))


def _values(field: str, least: int, most: int, words: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        found |= _range(part, (least, most), words)
    return frozenset(found)


def _range(part: str, bounds: tuple[int, int], words: tuple[str, ...]) -> set[int]:
    least, most = bounds
    extent, slash, step_text = part.partition("/")
    first_text, dash, last_text = extent.partition("-")
    if first_text in {"*", "?"}:
        first, last = least, most
    else:
        first = _number(first_text, least, words)
        last = _number(last_text, least, words) if dash else (most if slash else first)
    step = _number(step_text, 0, ()) if slash else 1
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {part}")
    if first < least:
        raise ValueError(f"beginning of range ({first}) below minimum ({least}): {part}")
    if last > most:
        raise ValueError(f"end of range ({last}) above maximum ({most}): {part}")
    if first > last:
        raise ValueError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    return set(range(first, last + 1, step))


def _number(text: str, least: int, words: tuple[str, ...]) -> int:
    if text in words:
        return words.index(text) + least
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"failed to parse int from {text}: it is no whole number")
    return int(text)


def _seconds(text: str) -> int:
    """A duration as Go writes it: `1h30m`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"failed to parse duration @every {text}")
    return max(1, int(sum(float(number) * _UNITS[unit] for number, unit in parts)))
