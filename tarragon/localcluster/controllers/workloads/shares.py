"""Numbers of pods, also where they are a part of all: `25%` of 10 is 3 or 2, by who is asked."""

from __future__ import annotations


def share(value: int | str, of: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * of // 100) if up else percent * of // 100


def surge_and_unavailable(surge: int | str, unavailable: int | str, wanted: int) -> tuple[int, int]:
    """How many more and how many fewer there may be. Never both none: then nothing could ever move."""
    more, fewer = share(surge, wanted, up=True), share(unavailable, wanted, up=False)
    return more, fewer if more or fewer else 1
