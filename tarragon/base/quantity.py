"""Kubernetes quantities (`500m`, `8Gi`, `1e3`) as exact integers in thousandths.

Thousandths are the finest unit that kube-scheduler uses for cpu. Finer amounts are rounded up, as it does.
"""

from __future__ import annotations

import re
from decimal import Decimal
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
_DECIMAL_SUFFIXES = dict(zip(range(-9, 19, 3), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), strict=True))
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_READABLE_SUFFIXES = ("Gi", "Mi", "Ki")
"""Memory of machines and of GPUs is compared in Gi, however much it is."""
_LARGEST = Fraction(2**63 - 1)
"""Greater quantities count as this one, as in Kubernetes."""
_NANO = 10**9
_KIBI = 1024
# The number of digits is limited, because evaluating a huge exponent would exhaust the memory.
_FORM = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)",
    re.ASCII,
)


@lru_cache(maxsize=4096, typed=True)  # the same few spellings recur; typed, because True == 1 but only 1 is valid
def parse_milli(text: str | float) -> int:
    """A quantity in thousandths, rounded up: `parse_milli("1.5") == 1500`, `parse_milli("8Gi") == 8 * 2**30 * 1000`.

    Raises ValueError for anything that kube-apiserver would reject as a quantity.
    """
    value, _, _ = _parse(text)
    scaled = value * 1000
    return -((-scaled.numerator) // scaled.denominator)


def _parse(text: str | float) -> tuple[Fraction, str, str]:
    """The value, the exponent and the suffix, which are empty if there is none."""
    match = _FORM.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write for example 500m, 2, 8Gi")
    number, exponent, suffix = match.groups(default="")
    value = Fraction(number.removesuffix(".")) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix])
    return max(-_LARGEST, min(value, _LARGEST)), exponent, suffix


def format_milli(milli_units: int) -> str:
    """The shortest spelling of an amount in thousandths: `format_milli(1500) == "1500m"`, `format_milli(8 * 2**30 *
    1000) == "8Gi"`.
    """
    if milli_units % 1000:
        return f"{milli_units}m"
    whole = milli_units // 1000
    for suffix in reversed(_BINARY_SUFFIXES[1:]):
        unit = _SUFFIXES[suffix].numerator
        if whole and whole % unit == 0:
            return f"{whole // unit}{suffix}"
    return str(whole)


def format_decimal(milli_units: int) -> str:
    """An amount in thousandths as a decimal number: `format_decimal(500) == "0.5"`."""
    return f"{Decimal(milli_units) / 1000:f}"


def format_bytes(milli_units: int) -> str:
    """Bytes with the largest unit of which there is one, and two decimals at most: `2.97Gi`."""
    whole = milli_units // 1000
    for suffix in _READABLE_SUFFIXES:
        unit = _SUFFIXES[suffix].numerator
        if whole >= unit:
            return f"{whole / unit:.2f}".rstrip("0").rstrip(".") + suffix
    return str(whole)


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The quantity as a Go server writes it: `0.5` becomes `500m`, `2048Mi` becomes `2Gi`.

    That is a whole number with the largest suffix of its system. Fractions below a billionth are rounded up. Raises
    ValueError for text that is not a quantity.
    """
    value, exponent, suffix = _parse(text)
    value = _rounded_to_nano(value)
    if suffix.endswith("i") and abs(value) >= _KIBI and value.denominator == 1:
        return _binary(value.numerator)
    mantissa, power = _mantissa(value)
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIXES[power]}"


def _rounded_to_nano(value: Fraction) -> Fraction:
    scaled = abs(value) * _NANO
    up = -(-scaled.numerator // scaled.denominator)
    return Fraction(up if value >= 0 else -up, _NANO)


def _binary(value: int) -> str:
    power = 0
    while value % _KIBI == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= _KIBI
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


def _mantissa(value: Fraction) -> tuple[int, int]:
    """The value as a whole number times a power of 1000, which is as large as the suffixes allow."""
    power, mantissa = -9, int(value * _NANO)
    if not mantissa:
        return 0, 0
    while mantissa % 1000 == 0 and power < max(_DECIMAL_SUFFIXES):
        mantissa //= 1000
        power += 3
    return mantissa, power
