"""Whom a client trusts, and the certificate that it shows itself."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from tarragon.client.errors import NoCredentials, unreachable
from tarragon.client.http.credentials import Identity


class Trust:
    """The TLS of a server, made anew when certificates change: new connections use it, old ones run out.

    All PEM; without an authority the system's decide.
    """

    def __init__(self, authority: bytes, *, checks_nothing: bool) -> None:
        self._authority = authority
        self._checks_nothing = checks_nothing
        self._made_of: tuple[bytes, bytes, bytes] | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def shown(self, identity: Identity) -> ssl.SSLContext:
        """For whoever shows this identity. Raises ApiError: files may be halfway through a renewal."""
        parts = identity.authority or self._authority, identity.certificate, identity.key
        if parts != self._made_of:
            context = _context(*parts)
            if self._checks_nothing:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._made_of, self._context = parts, context
        return self._context


def _context(authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Made of the given data only: variables such as SSL_CERT_FILE must not decide whom an operator trusts."""
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


def _present(trust: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads its own certificate from files only: they live in a private folder, and only for this call."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder, "client.pem")
            pem.touch(mode=0o600)
            pem.write_bytes(certificate + b"\n" + key)
            # An empty password: without one, OpenSSL asks for it at the terminal.
            trust.load_cert_chain(pem, password="")
    except (ssl.SSLError, ValueError) as error:
        raise NoCredentials(
            "the client certificate can't be used",
            why="it and its key must be PEM, belong together, and the key must not be encrypted",
        ) from error
    except OSError as error:
        raise NoCredentials(
            "the client certificate can't be used",
            why=f"there is no folder for temporary files to hand it on in: {error.strerror or error}",
            remedy="set TMPDIR to one that can be written to",
        ) from error
