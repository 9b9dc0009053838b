"""The rules of probes, and of what else a kubelet does to a container by way of a handler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.faults import Fault, invalid_value, required
from tarragon.localcluster.rules import names

Json = dict[str, Any]

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_SECONDS = (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3))
_LARGEST_PORT = 65535


def default_handlers(container: Json) -> None:
    for name in PROBES:
        if container.get(name) is not None:
            for field, value in _SECONDS:
                container[name].setdefault(field, value)
            _default_handler(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        _default_handler(handler)


def faults(path: str, container: Mapping[str, Any]) -> Iterator[Fault]:
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            yield from _probe_faults(f"{path}.{name}", probe)


def _probe_faults(path: str, probe: Mapping[str, Any]) -> Iterator[Fault]:
    handlers = [name for name in _HANDLERS if probe.get(name) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for name in handlers:
        if name in {"httpGet", "tcpSocket"}:
            yield from _port_faults(f"{path}.{name}.port", probe[name].get("port", 0))
    for field in ("initialDelaySeconds", *(field for field, _ in _SECONDS)):
        if probe.get(field, 0) < 0:
            yield invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _port_faults(path: str, port: int | str) -> Iterator[Fault]:
    if isinstance(port, str):
        yield from (invalid_value(path, port, words) for words in names.port_name(port))
    elif not 0 < port <= _LARGEST_PORT:
        yield invalid_value(path, port, f"must be between 1 and {_LARGEST_PORT}, inclusive")


def _default_handler(handler: Json) -> None:
    if handler.get("httpGet") is not None:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")
