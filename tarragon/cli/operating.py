"""What `tarragon operator` takes from its surroundings: the old operators' variables, the machine it runs on."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tarragon.operator.health import Address

Environment = Mapping[str, str]

LISTENING_PORT = 8080
OFF = "off"
HIGHEST_PORT = 65535


def kubeconfig(environment: Environment) -> Path | None:
    """USE_KUBE_CONFIG: how the first operator of all was told to run outside of its cluster."""
    named = environment.get("USE_KUBE_CONFIG", "")
    return Path(named).expanduser() if named else None


def cluster_domain(environment: Environment) -> str:
    return environment.get("CUSTOM_CLUSTER_DOMAIN", "")


def lease_namespace(environment: Environment) -> str:
    """Where old operators kept their lock: KUBEFLOW_NAMESPACE, and before that MY_POD_NAMESPACE."""
    return environment.get("KUBEFLOW_NAMESPACE", "") or environment.get("MY_POD_NAMESPACE", "")


def identity(environment: Environment) -> str:
    """Names the pod or the machine to people; the rest makes a restarted process another one."""
    where = environment.get("MY_POD_NAME", "") or socket.gethostname()
    return f"{where}_{uuid.uuid4().hex[:8]}"


def is_pod(environment: Environment) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment


def listening(text: str | None, environment: Environment) -> Address | None:
    """Raises BadParameter. Outside of a pod, nobody but this machine is answered unless that was asked for."""
    from tarragon.operator.health import Address

    if text == OFF:
        return None
    if text is None:
        return Address("" if is_pod(environment) else "127.0.0.1", LISTENING_PORT)
    host, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or int(port) > HIGHEST_PORT:
        raise click.BadParameter(f"{text!r} is not HOST:PORT; write for example :8080, 127.0.0.1:0 or {OFF}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
