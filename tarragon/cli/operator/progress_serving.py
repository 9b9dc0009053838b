"""How the operator serves reports of progress: with the certificate of the embedded cluster, or with its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec
from urllib.parse import urlsplit

import click

from tarragon.cli.operator import process_environment
from tarragon.cli.options.gathering import option_group

if TYPE_CHECKING:
    import datetime as dt

    from tarragon.client.port import Client
    from tarragon.localcluster.home.home import Home
    from tarragon.operator.progress.authority import ServerCertificate
    from tarragon.operator.progress.server import ProgressOptions


P = ParamSpec("P")


def embedded_progress(home: Home) -> ProgressOptions:
    """Return the options for the embedded cluster: on loopback, with the certificate of its API server.

    The port is that of the last time, if it is free: pods that run while the cluster is restarted know no other.
    """
    from tarragon.operator.progress.server import ProgressOptions

    async def certificate(_: Client, now: dt.datetime) -> ServerCertificate:
        return await asyncio.to_thread(_certificate, home, now)

    return ProgressOptions(
        host="127.0.0.1",
        ports=(_last_port(home), 0),
        certificate=certificate,
        on_listen=lambda port: _remember(home, port),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressServingOptions:
    """Where reports of progress are taken, as given on the command line."""

    progress_listen: str
    progress_url: str | None

    def options(self, namespace: str) -> ProgressOptions | None:
        """Return the options for an operator whose Lease is in that namespace; None if it takes no reports."""
        from tarragon.kube.meta import Key
        from tarragon.operator.progress.authority import SECRET_NAME, SecretAuthority
        from tarragon.operator.progress.server import ProgressOptions

        address = process_environment.parse_address(self.progress_listen, "--progress-listen")
        if address is None:
            return None
        url = self.progress_url or f"https://{SECRET_NAME}.{namespace}.svc"
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise click.BadParameter(f"{url!r} is not https://HOST or https://HOST:PORT", param_hint="--progress-url")
        authority = SecretAuthority(secret=Key(namespace, SECRET_NAME), host=parts.hostname)
        return ProgressOptions(
            host=address.host, ports=(address.port,), url=url.rstrip("/"), certificate=authority.certificate
        )


def progress_serving_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options that say where reports of progress are taken."""
    url = click.option(
        "--progress-url",
        metavar="URL",
        help="address of --progress-listen as pods reach it; by default https://tarragon-progress.NAMESPACE.svc",
    )
    listen = click.option(
        "--progress-listen",
        metavar="HOST:PORT",
        default=process_environment.OFF,
        show_default=True,
        help="take reports of progress from the programs of jobs at this address; needs the Secret tarragon-progress",
    )
    return listen(url(option_group("progress", ProgressServingOptions)(command)))


def _certificate(home: Home, now: dt.datetime) -> ServerCertificate:
    from tarragon.localcluster.daemon.certificates import ensure_certificates
    from tarragon.operator.progress.authority import ServerCertificate

    files = ensure_certificates(home, now)
    text = files.authority.read_text()
    return ServerCertificate(
        authority=text[text.index("-----BEGIN") :], chain=files.chain.read_bytes(), key=files.key.read_bytes()
    )


def _last_port(home: Home) -> int:
    with suppress(OSError, ValueError):
        return int(home.progress_port.read_text())
    return 0


def _remember(home: Home, port: int) -> None:
    from tarragon.localcluster.home.home import write_private_file

    with suppress(OSError):  # after a restart, pods that run can't report
        write_private_file(home.progress_port, str(port).encode())
