"""The TLS context of a client: the authority that it trusts, and its own certificate."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from tarragon.client.errors import CredentialsError, unreachable
from tarragon.client.http.credentials import ClientIdentity


class TlsContextCache:
    """The TLS context for a server, rebuilt when certificates change. Only new connections use the new one.

    Certificates are PEM. Without an authority, the system's authorities are trusted.
    """

    def __init__(self, authority: bytes, *, checks_nothing: bool) -> None:
        self._authority = authority
        self._checks_nothing = checks_nothing
        self._certificates: tuple[bytes, bytes, bytes] | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def context_for(self, identity: ClientIdentity) -> ssl.SSLContext:
        """The TLS context for this identity. Raises ApiError, for example if a certificate is only half renewed."""
        certificates = identity.authority or self._authority, identity.certificate, identity.key
        if certificates != self._certificates:
            context = _context(*certificates)
            if self._checks_nothing:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._certificates, self._context = certificates, context
        return self._context


def _context(authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A context from the given data only: with an authority given, SSL_CERT_FILE and the like have no effect."""
    if authority:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            trust.load_verify_locations(cadata=authority.decode())
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise unreachable(
                f"the server can't be verified: its certificate authority is not valid PEM ({error})"
            ) from error
    else:
        trust = ssl.create_default_context()
    if certificate:
        _load_client_certificate(trust, certificate, key)
    return trust


def _load_client_certificate(trust: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load the client certificate by a temporary file in a private directory: OpenSSL reads it from files only."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder, "client.pem")
            pem.touch(mode=0o600)
            pem.write_bytes(certificate + b"\n" + key)
            # Without a password argument, OpenSSL would prompt on the terminal for an encrypted key.
            trust.load_cert_chain(pem, password="")
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(
            "the client certificate can't be used",
            why="certificate and key must be PEM and must match, and the key must not be encrypted",
        ) from error
    except OSError as error:
        raise CredentialsError(
            "the client certificate can't be used",
            why=f"there is no writable directory for temporary files: {error.strerror or error}",
            remedy="set TMPDIR to a writable directory",
        ) from error
