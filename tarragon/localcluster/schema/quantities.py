"""The canonical form of quantities, as a Go server writes them: `0.5` becomes `500m`, `2048Mi` becomes `2Gi`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from tarragon.base.quantity import parse_milli

_PARTS = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?\d+)|([A-Za-z]*))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_FINEST = 10**9
_KIBI = 1024


@lru_cache(maxsize=4096)  # the same few quantities recur
def canonical(text: str) -> str:
    """A whole number with the largest suffix of its system. Fractions below a billionth are rounded up.

    Raises ValueError for text that is not a quantity.
    """
    parse_milli(text)
    match = _PARTS.fullmatch(text.strip())
    assert match is not None  # noqa: S101 - it is a quantity
    number, exponent, suffix = match[1], match[2], match[3] or ""
    value = Fraction(number.removesuffix("."))
    if exponent is not None:
        value *= Fraction(10) ** int(exponent)
    elif suffix in _BINARY:
        value *= _KIBI ** _BINARY[suffix]
    else:
        value *= Fraction(10) ** _DECIMAL[suffix]
    value = _rounded(value)
    if suffix in _BINARY and abs(value) >= _KIBI and value.denominator == 1:
        return _binary(value.numerator)
    return _decimal(value, has_exponent=exponent is not None)


def _rounded(value: Fraction) -> Fraction:
    scaled = abs(value) * _FINEST
    up = -(-scaled.numerator // scaled.denominator)
    return Fraction(up if value >= 0 else -up, _FINEST)


def _binary(value: int) -> str:
    power = 0
    while value % _KIBI == 0 and power < len(_BINARY):
        value //= _KIBI
        power += 1
    names = ["", *_BINARY]
    return f"{value}{names[power]}"


def _decimal(value: Fraction, *, has_exponent: bool) -> str:
    if not value:
        return "0"
    power, mantissa = -9, int(value * _FINEST)
    while mantissa % 1000 == 0 and power < _DECIMAL["E"]:
        mantissa //= 1000
        power += 3
    if has_exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{next(name for name, one in _DECIMAL.items() if one == power)}"
