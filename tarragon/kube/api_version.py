"""Compares versions of an API, such as `kubeflow.org/v1beta2`, as Kubernetes names them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_FORM = re.compile(r"(?P<group>[^/]+)/v(?P<major>[1-9]\d*)(?:(?P<stability>alpha|beta)(?P<minor>[1-9]\d*))?")
_STABILITIES = (None, "beta", "alpha")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """`v1beta2` is (1, beta, 2). A stable version has the stability None."""

    text: str
    group: str
    major: int
    stability: str | None
    minor: int


def nearest_version(api_version: str, known: Iterable[str]) -> str | None:
    """Returns the known version of the same group that was probably meant: that with the nearest number.

    Of several, it is the most similar one if there is one as stable as that of `api_version`, else the most stable one.
    """
    typed = _parsed(api_version)
    if typed is None:
        return None
    candidates = [version for version in map(_parsed, known) if version is not None and version.group == typed.group]

    def difference(version: _Version) -> tuple[int, bool, int, int]:
        numbers = abs(version.major - typed.major), abs(version.minor - typed.minor)
        is_other = (version.major, version.stability) != (typed.major, typed.stability)
        return numbers[0], is_other, _STABILITIES.index(version.stability), numbers[1]

    return min(candidates, key=difference).text if candidates else None


def _parsed(text: str) -> _Version | None:
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    return _Version(
        text=text,
        group=found["group"],
        major=int(found["major"]),
        stability=found["stability"],
        minor=int(found["minor"] or 0),
    )
