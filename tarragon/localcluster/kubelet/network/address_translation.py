"""Translates the cluster addresses and mount paths of a manifest into those of this machine.

A Service address (`ps-0.default.svc:2222`) becomes `127.0.0.1:P`, a mount path (`/opt/train/x.py`) the local path of
its volume. Only whole tokens of these two kinds are changed; all other text stays byte for byte. An address may also
be a pair of variables, such as MASTER_ADDR and MASTER_PORT.

Not translated: a port that a program listens on without reading it from its environment, and a path written into a
script. The port is reached by its own number; the path would need a mount namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class ServiceAddress:
    """A Service port by DNS name. `namespace` is empty when the text has none: it is the pod's namespace then."""

    namespace: str
    name: str
    port: int

    @property
    def service(self) -> str:
        """The name of the Service; `name` is `hostname.service` for a pod behind a headless Service."""
        return self.name.rpartition(".")[2]


PortLookup = Callable[[ServiceAddress], int | None]
"""The local port of an address, or None when it is not an address of the cluster."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
# Token separators in JSON, host files, command lines and lists. A backslash with n, r or t is white space in a JSON
# string; a backslash before a quote occurs in JSON within JSON.
_BEFORE = r"""(?:(?<=[\s"'`=,;|/@&<>()\[\]{}])|(?<=\\[nrt])|\A)"""
_AFTER = r"""(?=[\s"'`=,;|/?#&<>()\[\]{}\\]|\Z)"""
_HOST = rf"(?P<name>{_LABEL}(?:\.{_LABEL})*?)(?:\.(?P<namespace>{_LABEL})\.svc(?:\.{_LABEL})*\.?)?"
_ADDRESS = re.compile(rf"{_BEFORE}{_HOST}:(?P<port>[1-9]\d{{0,4}}){_AFTER}")
_LONGEST_NAME = 2
"""Labels before the namespace: `pod.service.namespace.svc` has two, and names with more are not of a cluster."""


def _address(match: re.Match[str], labels: int = 1) -> ServiceAddress | None:
    """The matched address; None when its name has more labels than `labels`, or than a full name can have."""
    name, namespace, port = match["name"], match["namespace"] or "", int(match["port"])
    if port > 65535 or name.count(".") >= (_LONGEST_NAME if namespace else labels):  # noqa: PLR2004 - TCP's last port
        return None
    return ServiceAddress(namespace=namespace, name=name, port=port)


def find_addresses(text: str) -> set[ServiceAddress]:
    """All tokens that may be Service addresses; one without a namespace is one only if such a Service exists."""
    return {address for match in _ADDRESS.finditer(text) if (address := _address(match))}


def localize_addresses(text: str, lookup: PortLookup) -> str:
    """Replace each address that `lookup` knows by `127.0.0.1:P`."""

    def local(match: re.Match[str]) -> str:
        address = _address(match)
        port = lookup(address) if address else None
        return match[0] if port is None else f"127.0.0.1:{port}"

    return _ADDRESS.sub(local, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPair:
    """The names of two variables of a container that are the host and the port of one address."""

    host: str
    port: str
    address: ServiceAddress


_HOST_SUFFIXES = ("_ADDR", "_ADDRESS", "_HOST")
_PAIR = re.compile(rf"{_HOST}:(?P<port>[1-9]\d{{0,4}})")


def find_address_pairs(variables: Mapping[str, str]) -> list[AddressPair]:
    """The pairs of variables that may be Service addresses: X_ADDR, X_ADDRESS or X_HOST, and X_PORT."""
    return [pair for name in variables if name.endswith("_PORT") for pair in _pairs_of(name, variables)]


def _pairs_of(port: str, variables: Mapping[str, str]) -> Iterator[AddressPair]:
    for host in (port.removesuffix("_PORT") + suffix for suffix in _HOST_SUFFIXES):
        match = _PAIR.fullmatch(f"{variables.get(host, '')}:{variables[port]}")
        address = _address(match, labels=_LONGEST_NAME) if match else None
        if address is not None:
            yield AddressPair(host=host, port=port, address=address)


def localize_address_pairs(
    variables: Mapping[str, str], pairs: Iterable[AddressPair], lookup: PortLookup
) -> dict[str, str]:
    """The variables, with 127.0.0.1 and the local port in each pair that `lookup` knows."""
    local = {pair: port for pair in pairs if (port := lookup(pair.address)) is not None}
    hosts = {pair.host: "127.0.0.1" for pair in local}
    return dict(variables) | hosts | {pair.port: str(port) for pair, port in local.items()}


# A colon separates paths (PYTHONPATH). Closing brackets do not come before a path: `$(pwd)/data`, `${HOME}/data`.
_BEFORE_PATH = r"""(?:(?<=[\s"'`=,;:|@&<>(\[{!])|(?<=\\[nrt])|(?<=file://)|\A)"""
_AFTER_PATH = r"""(?![\w.+~@%-])"""


def localize_paths(text: str, places: Mapping[str, Path]) -> str:
    """Replace each mount path, alone or as the beginning of a path, by its local path."""
    pattern = _pattern_of(places)
    return pattern.sub(lambda match: str(places[match[0]]), text) if pattern else text


def _pattern_of(paths: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of all these paths. The longest match wins, as volumes may be mounted within one another."""
    longest_first = sorted((path for path in paths if path.strip("/")), key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile(f"{_BEFORE_PATH}(?:{'|'.join(map(re.escape, longest_first))}){_AFTER_PATH}")
