"""Kubernetes quantities (`500m`, `8Gi`, `1e3`) as exact integers in thousandths.

Thousandths are the finest unit that kube-scheduler uses for cpu. Finer amounts are rounded up, as it does.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
# The number of digits is limited, because evaluating a huge exponent would exhaust the memory.
_FORM = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)"
)


@lru_cache(maxsize=4096, typed=True)  # the same few spellings recur; typed, because True == 1 but only 1 is valid
def parse_milli(text: str | float) -> int:
    """A quantity in thousandths, rounded up: `parse_milli("1.5") == 1500`, `parse_milli("8Gi") == 8 * 2**30 * 1000`.

    Raises ValueError for anything that kube-apiserver would reject as a quantity.
    """
    match = _FORM.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write for example 500m, 2, 8Gi")
    number, exponent, suffix = match.groups()
    value = Fraction(number if not number.endswith(".") else number[:-1])
    value *= Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    scaled = value * 1000
    return -((-scaled.numerator) // scaled.denominator)


def format_milli(milli_units: int) -> str:
    """The shortest spelling of an amount in thousandths: `format_milli(1500) == "1500m"`, `format_milli(8 * 2**30 *
    1000) == "8Gi"`.
    """
    if milli_units % 1000:
        return f"{milli_units}m"
    whole = milli_units // 1000
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = _SUFFIXES[suffix].numerator
        if whole and whole % unit == 0:
            return f"{whole // unit}{suffix}"
    return str(whole)
