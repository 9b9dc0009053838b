"""Keeps the last results of a function of a text, where the same text is soon asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_RESULTS = 64
MAX_TEXT_BYTES = 4096
"""Longer texts are computed each time: what is kept must stay small, whatever users write."""


class RecentResults(Generic[T]):
    """`compute` without its repetitions. Callers share the results and must not change them.

    `is_small` tells whether a result may be kept. The oldest of MAX_RESULTS results goes first.
    """

    def __init__(self, compute: Callable[[bytes], T], is_small: Callable[[T], bool] = lambda _: True) -> None:
        self._compute = compute
        self._is_small = is_small
        self._results: dict[bytes, T] = {}

    def __call__(self, text: bytes) -> T:
        if text in self._results:
            return self._results[text]
        result = self._compute(text)
        if len(text) <= MAX_TEXT_BYTES and self._is_small(result):
            while len(self._results) >= MAX_RESULTS:
                del self._results[next(iter(self._results))]
            self._results[text] = result
        return result
