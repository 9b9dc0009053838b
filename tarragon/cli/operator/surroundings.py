"""What programs that run on take from their surroundings: the old operators' variables, the machine, the terminal."""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import Settings

if TYPE_CHECKING:
    from tarragon.operator.manager.health import Address
    from tarragon.plan.objects.accelerators import Accelerator

P = ParamSpec("P")

Environment = Mapping[str, str]

LISTENING_PORT = 8080
OFF = "off"
HIGHEST_PORT = 65535


class BadConfig(TarragonError):
    """A file that the operator is to work by and can't."""

    exit_code = 2


def accelerators_option(command: Callable[P, None]) -> Callable[P, None]:
    """Also in the spelling of 2017."""
    return click.option(
        "--controller-config-file",
        "--controller_config_file",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="volumes and variables for who asks for an accelerator, as the operator of v1alpha1 read them",
    )(command)


def log(settings: Settings, form: str | None = None) -> None:
    """On stderr, as a program that runs until it is told to end: by default text on a terminal, else json."""
    from tarragon.base import logs

    wanted = form or ("text" if sys.stderr.isatty() else "json")
    logs.configure("text" if wanted == "text" else "json", "debug" if settings.is_verbose else "info", sys.stderr)


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


def accelerators(file: Path | None) -> Mapping[str, Accelerator]:
    """Of a controller config file, as the first operator of kubeflow.org had it. Raises BadConfig."""
    import yaml

    from tarragon.plan.objects.accelerators import read

    if file is None:
        return {}
    try:
        config = read(yaml.safe_load(file.read_bytes()))
    except OSError as error:
        raise BadConfig(f"can't read {file}", why=error.strerror or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig(f"{file} is not YAML", why=str(error)) from error
    if config.problems:
        raise BadConfig(f"{file} is no controller config", why="\n".join(f"  {each}" for each in config.problems))
    for warning in config.warnings:
        click.echo(f"warning: {file}: {warning}", err=True)
    return config.accelerators


def is_pod(environment: Environment) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment


def listening(text: str | None, environment: Environment) -> Address | None:
    """Raises BadParameter. Outside of a pod, nobody but this machine is answered unless that was asked for."""
    from tarragon.operator.manager.health import Address

    if text == OFF:
        return None
    if text is None:
        return Address("" if is_pod(environment) else "127.0.0.1", LISTENING_PORT)
    host, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or int(port) > HIGHEST_PORT:
        raise click.BadParameter(f"{text!r} is not HOST:PORT; write for example :8080, 127.0.0.1:0 or {OFF}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
