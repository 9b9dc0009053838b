"""The environment of long-running commands: logging, pod and host identity, and environment variables of TF operators
that Tarragon replaces.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import GlobalOptions

if TYPE_CHECKING:
    from tarragon.kube.meta import Key
    from tarragon.operator.manager.health import ListenAddress
    from tarragon.plan.objects.accelerators import Accelerator

P = ParamSpec("P")

Environment = Mapping[str, str]

DEFAULT_PORT = 8080
OFF = "off"
MAX_PORT = 65535


class BadConfig(TarragonError):
    """A configuration file of the operator is invalid."""

    exit_code = 2


def accelerators_option(command: Callable[P, None]) -> Callable[P, None]:
    """Add `--controller-config-file`, also in its spelling of 2017, with underscores."""
    return click.option(
        "--controller-config-file",
        "--controller_config_file",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="volumes and variables for pods that request an accelerator, in the format of the v1alpha1 operator",
    )(command)


def configure_logging(settings: GlobalOptions, form: str | None = None) -> None:
    """Configure logging to stderr: by default text on a terminal, JSON otherwise."""
    from tarragon.base import logging

    wanted = form or ("text" if sys.stderr.isatty() else "json")
    logging.configure("text" if wanted == "text" else "json", "debug" if settings.is_verbose else "info", sys.stderr)


def kubeconfig(environment: Environment) -> Path | None:
    """Return the path in USE_KUBE_CONFIG, with which the first TF operator ran outside its cluster."""
    named = environment.get("USE_KUBE_CONFIG", "")
    return Path(named).expanduser() if named else None


def cluster_domain(environment: Environment) -> str:
    return environment.get("CUSTOM_CLUSTER_DOMAIN", "")


def lease_namespace(environment: Environment) -> str:
    """Return the Lease namespace of older TF operators: KUBEFLOW_NAMESPACE, or the earlier MY_POD_NAMESPACE."""
    return environment.get("KUBEFLOW_NAMESPACE", "") or environment.get("MY_POD_NAMESPACE", "")


def own_pod(environment: Environment, namespace: str) -> Key | None:
    """Return the pod that this process runs in; None outside of pods. `namespace` is that of its service account."""
    from tarragon.kube.meta import Key

    name = environment.get("MY_POD_NAME", "") or socket.gethostname()
    return Key(namespace, name) if is_pod(environment) else None


def identity(environment: Environment) -> str:
    """Return the pod or host name with a random suffix, so that a restarted process has another identity."""
    where = environment.get("MY_POD_NAME", "") or socket.gethostname()
    return f"{where}_{uuid.uuid4().hex[:8]}"


def read_accelerators(file: Path | None) -> Mapping[str, Accelerator]:
    """Read a controller config file of the v1alpha1 operator; empty without a file. Raises BadConfig."""
    if file is None:
        return {}
    import yaml

    from tarragon.plan.objects.accelerators import decode_controller_config

    try:
        config = decode_controller_config(yaml.safe_load(file.read_bytes()))
    except OSError as error:
        raise BadConfig(f"can't read {file}", why=error.strerror or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig(f"{file} is not YAML", why=str(error)) from error
    if config.problems:
        raise BadConfig(
            f"{file} is not a valid controller config", why="\n".join(f"  {each}" for each in config.problems)
        )
    for warning in config.warnings:
        click.echo(f"warning: {file}: {warning}", err=True)
    return config.accelerators


def is_pod(environment: Environment) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment


def listen_address(text: str | None, environment: Environment) -> ListenAddress | None:
    """Parse `--listen`. By default only local clients can connect outside a pod. Raises BadParameter."""
    from tarragon.operator.manager.health import ListenAddress

    if text is None:
        return ListenAddress("" if is_pod(environment) else "127.0.0.1", DEFAULT_PORT)
    return parse_address(text)


def parse_address(text: str, option: str | None = None) -> ListenAddress | None:
    """Parse an address to listen at; None for `off`. Raises BadParameter."""
    from tarragon.operator.manager.health import ListenAddress

    if text == OFF:
        return None
    host, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or int(port) > MAX_PORT:
        raise click.BadParameter(
            f"{text!r} is not HOST:PORT; write for example :8080, 127.0.0.1:0 or {OFF}", param_hint=option
        )
    return ListenAddress(host.removeprefix("[").removesuffix("]"), int(port))
