"""Defaults and validation of probes and lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, required, unsupported

Json = dict[str, Any]

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_HEADER = "[-A-Za-z0-9]+"
_HEADER_MESSAGE = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    f"(e.g. 'X-Header-Name', regex used for validation is '{_HEADER}')"
)
_PROBE_DEFAULTS = (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3))
_LARGEST_PORT = 65535


def default_handlers(container: Json) -> None:
    for name in PROBES:
        if container.get(name) is not None:
            for field, value in _PROBE_DEFAULTS:
                container[name][field] = container[name].get(field) or value
            _default_handler(container[name])
    for name in HOOKS:
        _default_handler((container.get("lifecycle") or {}).get(name) or {})


def faults(path: str, container: Mapping[str, Any], grace: int) -> Iterator[FieldError]:
    """Faults of a container's probes and hooks. `grace` is the pod's grace period in seconds."""
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            yield from _probe_faults(f"{path}.{name}", probe)
            yield from _value_faults(f"{path}.{name}", name, probe)
    for name in HOOKS:
        hook = (container.get("lifecycle") or {}).get(name)
        if hook is not None:
            yield from _handler_faults(f"{path}.lifecycle.{name}", hook, _HOOK_HANDLERS)
            yield from _sleep_faults(f"{path}.lifecycle.{name}.sleep", hook, grace)


def init_container_faults(path: str, container: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of an init container. Only a sidecar (restartPolicy Always) may have probes and hooks."""
    policy = container.get("restartPolicy")
    if policy is not None and policy != "Always":
        yield unsupported(f"{path}.restartPolicy", policy, ("Always",))
    if policy == "Always":
        return
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            yield forbidden_value(f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")


def _probe_faults(path: str, probe: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _handler_faults(path, probe, _PROBE_HANDLERS)
    for field in ("initialDelaySeconds", *(field for field, _ in _PROBE_DEFAULTS)):
        if probe.get(field, 0) < 0:
            yield invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _value_faults(path: str, name: str, probe: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of fields that only some probes may set."""
    grace = probe.get("terminationGracePeriodSeconds")
    if name == "readinessProbe":
        if grace is not None:
            yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
        return
    if grace is not None and grace <= 0:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if probe["successThreshold"] != 1:
        yield invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler_faults(path: str, parent: Mapping[str, Any], allowed: Sequence[str]) -> Iterator[FieldError]:
    handlers = [name for name in allowed if parent.get(name) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for name in handlers[1:]:
        yield forbidden_value(f"{path}.{name}", "may not specify more than 1 handler type")
    if "exec" in handlers[:1] and not parent["exec"].get("command"):
        yield required(f"{path}.exec.command")
    if "httpGet" in handlers[:1]:
        yield from _request_faults(f"{path}.httpGet", parent["httpGet"])
    for name in ("tcpSocket", "grpc"):
        if name in handlers[:1]:
            yield from _port_faults(f"{path}.{name}.port", parent[name].get("port", 0))


def _request_faults(path: str, request: Mapping[str, Any]) -> Iterator[FieldError]:
    if not request.get("path"):
        yield required(f"{path}.path")
    yield from _port_faults(f"{path}.port", request.get("port", 0))
    if request["scheme"] not in _SCHEMES:
        yield unsupported(f"{path}.scheme", request["scheme"], _SCHEMES)
    for header in request.get("httpHeaders") or ():
        if not re.fullmatch(_HEADER, header.get("name", "")):
            yield invalid_value(f"{path}.httpHeaders", header.get("name", ""), _HEADER_MESSAGE)


def _sleep_faults(path: str, hook: Mapping[str, Any], grace: int) -> Iterator[FieldError]:
    if hook.get("sleep") is not None and not 0 < (seconds := hook["sleep"].get("seconds", 0)) <= grace:
        words = f"must be greater than 0 and less than terminationGracePeriodSeconds ({grace})"
        yield invalid_value(path, seconds, words)


def _port_faults(path: str, port: int | str) -> Iterator[FieldError]:
    if isinstance(port, str):
        yield from (invalid_value(path, port, words) for words in name_validation.port_name(port))
    elif not 0 < port <= _LARGEST_PORT:
        yield invalid_value(path, port, f"must be between 1 and {_LARGEST_PORT}, inclusive")


def _default_handler(handler: Json) -> None:
    if handler.get("httpGet") is not None:
        request = handler["httpGet"]
        request["path"] = request.get("path") or "/"
        request["scheme"] = request.get("scheme") or "HTTP"
    if handler.get("grpc") is not None:
        handler["grpc"].setdefault("service", "")
