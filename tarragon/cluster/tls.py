"""Whom a client trusts, and the certificate that it shows itself."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from tarragon.cluster.errors import NoCredentials, unreachable


def context(authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """All PEM; without an authority the system's decide. Raises ApiError: files may be halfway through a renewal.

    Made of the given data only: variables such as SSL_CERT_FILE must not decide whom an operator trusts.
    """
    if authority:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            trust.load_verify_locations(cadata=authority.decode())
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise unreachable(
                f"the server can't be checked: its authority is no certificate in PEM ({error})"
            ) from error
    else:
        trust = ssl.create_default_context()
    if certificate:
        _present(trust, certificate, key)
    return trust


def trust_anybody(trust: ssl.SSLContext) -> None:
    """Check nothing any more."""
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE


def _present(trust: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads its own certificate from files only: they live in a private folder, and only for this call."""
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder, "client.pem")
        pem.touch(mode=0o600)
        pem.write_bytes(certificate + b"\n" + key)
        try:
            # An empty password: without one, OpenSSL asks for it at the terminal.
            trust.load_cert_chain(pem, password="")
        except (ssl.SSLError, ValueError) as error:
            raise NoCredentials(
                "the client certificate can't be used",
                why="it and its key must be PEM, belong together, and the key must not be encrypted",
            ) from error
