"""What parts of a GPU are worth to requests of certain sizes, by the duals of the cutting stock problem.

Requests for parts of GPUs are the pieces that are cut from GPUs. The linear program that serves them with fewest GPUs
has a price for each size (Gilmore and Gomory, 1961); a part is worth the most that pieces cut from it would cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

GRID = 100
"""Sizes are whole numbers of this part of a GPU."""
_MAX_PATTERNS = 100
"""More ways to cut a GPU than this improve nothing that matters."""
_TOLERANCE = 1e-6

Values = npt.NDArray[np.float64]


def part_values(counts: Mapping[int, int]) -> Values:
    """Return the worth of each part of a GPU, from 0 to `GRID`, in GPUs, to so many requests of each size. Without
    requests a part is worth its size.
    """
    if not counts:
        return np.arange(GRID + 1) / GRID
    sizes = np.array(sorted(counts), np.int64)
    wanted = np.array([counts[int(size)] for size in sizes], np.float64)
    # Each column of the basis is a way to cut a GPU; in the beginning, into pieces of one size.
    inverse = np.diag(1.0 / (GRID // sizes))
    used = inverse @ wanted
    values, pattern = _best_cut(sizes, inverse.sum(axis=0))
    for _ in range(_MAX_PATTERNS):
        if values[GRID] <= 1 + _TOLERANCE:
            break
        direction = inverse @ pattern
        is_limited = direction > _TOLERANCE
        ratios = np.where(is_limited, used / np.where(is_limited, direction, 1.0), np.inf)
        leaving = int(ratios.argmin())
        step = ratios[leaving]
        used = used - step * direction
        used[leaving] = step
        row = inverse[leaving] / direction[leaving]
        inverse = inverse - np.outer(direction, row)
        inverse[leaving] = row
        values, pattern = _best_cut(sizes, inverse.sum(axis=0))
    return np.minimum(values, 1.0)


def _best_cut(sizes: npt.NDArray[np.int64], prices: Values) -> tuple[Values, Values]:
    """Return the best price of pieces cut from each part, and how often each size is in the best cut of a GPU."""
    # Plain numbers: there are few sizes, and numpy takes several times as long.
    pieces = list(zip(sizes.tolist(), prices.tolist(), range(len(sizes)), strict=True))
    values, last = [0.0] * (GRID + 1), [-1] * (GRID + 1)
    for part in range(1, GRID + 1):
        most, least = values[part - 1], values[part - 1] + _TOLERANCE * _TOLERANCE
        for size, price, index in pieces:
            if size > part:
                break
            value = values[part - size] + price
            if value > least:
                most = least = value
                last[part] = index
        values[part] = most
    pattern, rest = np.zeros(len(sizes)), GRID
    while rest > 0:
        if last[rest] < 0:
            rest -= 1
        else:
            pattern[last[rest]] += 1
            rest -= int(sizes[last[rest]])
    return np.array(values), pattern
