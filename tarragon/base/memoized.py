"""Memoizes a function of bytes that users write, within bounds of memory.

`functools.lru_cache` bounds the number of results alone: 64 of them may take a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_ENTRIES = 64
MAX_KEY_BYTES = 4096
"""The results of longer texts are not kept."""


class Memoized(Generic[T]):
    """The function `compute`, which keeps its last results. Callers share them and must not change them.

    `is_small` tells whether a result may be kept. The oldest of MAX_ENTRIES results goes first.
    """

    def __init__(self, compute: Callable[[bytes], T], is_small: Callable[[T], bool] = lambda _: True) -> None:
        self._compute = compute
        self._is_small = is_small
        self._results: dict[bytes, T] = {}

    def __call__(self, text: bytes) -> T:
        if text in self._results:
            return self._results[text]
        result = self._compute(text)
        if len(text) <= MAX_KEY_BYTES and self._is_small(result):
            while len(self._results) >= MAX_ENTRIES:
                del self._results[next(iter(self._results))]
            self._results[text] = result
        return result
