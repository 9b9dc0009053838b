"""Turns what a manifest says about a cluster's network and file system into what is true on this machine.

A service's address (`ps-0.default.svc:2222`) becomes `127.0.0.1:P`, a mount path (`/opt/train/x.py`) the place of its
volume. Both are functions of a text and of what is known; everything that is not a whole token of these two kinds
stays as it is, byte for byte.

What cannot be translated: a program that listens on its containerPort without having read the number anywhere in its
environment, and a path that is written into a script. The first is reached under the number it listens on, the
second needs a mount namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Address:
    """A service's port, as DNS would name it. `namespace` is empty where the text names none: then it is the pod's."""

    namespace: str
    name: str
    port: int


Lookup = Callable[[Address], int | None]
"""The local port of an address, or None when it is not an address of ours."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
# What separates tokens in JSON, host files, command lines and lists. A backslash with n, r or t is a line end within a
# JSON string; a backslash before a quote stands in JSON within JSON.
_BEFORE = r"""(?:(?<=[\s"'`=,;|/@&<>()\[\]{}])|(?<=\\[nrt])|\A)"""
_AFTER = r"""(?=[\s"'`=,;|/?#&<>()\[\]{}\\]|\Z)"""
_ADDRESS = re.compile(
    rf"{_BEFORE}(?P<name>{_LABEL}(?:\.{_LABEL})*?)(?:\.(?P<namespace>{_LABEL})\.svc(?:\.{_LABEL})*\.?)?"
    rf":(?P<port>[1-9]\d{{0,4}}){_AFTER}"
)
_LONGEST_NAME = 2
"""`pod.service.namespace.svc` has two labels before the namespace; more is no name of a cluster."""


def _address(match: re.Match[str]) -> Address | None:
    name, namespace, port = match["name"], match["namespace"] or "", int(match["port"])
    if port > 65535 or name.count(".") >= (_LONGEST_NAME if namespace else 1):  # noqa: PLR2004 - the last port of TCP
        return None
    return Address(namespace=namespace, name=name, port=port)


def addresses(text: str) -> set[Address]:
    """All that may be addresses of services. One without a namespace is one only if there is such a service."""
    return {address for match in _ADDRESS.finditer(text) if (address := _address(match))}


def with_local_ports(text: str, lookup: Lookup) -> str:
    """The text with each address that `lookup` knows as `127.0.0.1:P`."""

    def local(match: re.Match[str]) -> str:
        address = _address(match)
        port = lookup(address) if address else None
        return match[0] if port is None else f"127.0.0.1:{port}"

    return _ADDRESS.sub(local, text)


# A colon separates paths (PYTHONPATH). Closing brackets do not come before a path: `$(pwd)/data`, `${HOME}/data`.
_BEFORE_PATH = r"""(?:(?<=[\s"'`=,;:|@&<>(\[{!])|(?<=\\[nrt])|(?<=file://)|\A)"""
_AFTER_PATH = r"""(?![\w.+~@%-])"""


def with_local_paths(text: str, places: Mapping[str, Path]) -> str:
    """The text with each mount path, alone or with more of a path behind it, as the place on this machine."""
    pattern = _pattern_of(places)
    return pattern.sub(lambda match: str(places[match[0]]), text) if pattern else text


def _pattern_of(paths: Iterable[str]) -> re.Pattern[str] | None:
    """The longest path that fits wins: volumes may be mounted within one another."""
    longest_first = sorted((path for path in paths if path.strip("/")), key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile(f"{_BEFORE_PATH}(?:{'|'.join(map(re.escape, longest_first))}){_AFTER_PATH}")
