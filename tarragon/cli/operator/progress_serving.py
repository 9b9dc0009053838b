"""How the operator serves reports of progress: with the certificate of the embedded cluster, or with its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from tarragon.client.port import Client
    from tarragon.localcluster.home.home import Home
    from tarragon.operator.progress.server import ProgressOptions, ServerCertificate


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


def _certificate(home: Home, now: dt.datetime) -> ServerCertificate:
    from tarragon.localcluster.daemon.certificates import ensure_certificates
    from tarragon.operator.progress.server import ServerCertificate

    files = ensure_certificates(home, now)
    text = files.authority.read_text()
    return ServerCertificate(authority=text[text.index("-----BEGIN") :], chain=files.chain, key=files.key)


def _last_port(home: Home) -> int:
    with suppress(OSError, ValueError):
        return int(home.progress_port.read_text())
    return 0


def _remember(home: Home, port: int) -> None:
    from tarragon.localcluster.home.home import write_private_file

    with suppress(OSError):  # after a restart, pods that run can't report
        write_private_file(home.progress_port, str(port).encode())
