"""Provides the credentials of a client before each request, so that they may change while it runs."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tarragon.base.clock import Clock
from tarragon.client.errors import CredentialsError

RELOAD_SECONDS = 60.0
"""How often files are read again. The kubelet renews a token after 80 % of its lifetime, so a minute is enough."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The credentials of a client: an Authorization header, a client certificate with its key (PEM), both, or none.

    `authority` overrides the certificate authority of the server if it was renewed since the client was created.
    """

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    authority: bytes = field(default=b"", repr=False)


class Credentials(Protocol):
    """A source of identities."""

    async def identity(self, refused: ClientIdentity | None = None) -> ClientIdentity:
        """The current identity. `refused` is one that the server has just rejected and that must be renewed.

        Raises CredentialsError.
        """
        ...


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Credentials that never change."""

    static_identity: ClientIdentity

    async def identity(self, refused: ClientIdentity | None = None) -> ClientIdentity:  # noqa: ARG002 - nothing can be renewed
        return self.static_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSources:
    """The sources of an identity: bytes are used as they are, paths are read.

    `token` is used until `token_file` can be read.
    """

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: bytes | Path = b""
    key: bytes | Path = field(default=b"", repr=False)
    authority: bytes | Path = b""


class FileCredentials:
    """Credentials from files, which are read again every minute and after the server rejected them.

    If a file is missing, the last identity is kept, because the file may just be in the process of being replaced.
    """

    def __init__(self, sources: CredentialSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._cached: ClientIdentity | None = None
        self._read_at = 0.0

    async def identity(self, refused: ClientIdentity | None = None) -> ClientIdentity:
        now = self._clock.monotonic()
        if self._cached is None or refused == self._cached or now - self._read_at >= RELOAD_SECONDS:
            self._cached = self._read()
            self._read_at = now
        return self._cached

    def _read(self) -> ClientIdentity:
        sources = self._sources
        try:
            return ClientIdentity(
                authorization(self._token(), sources.username, sources.password),
                _content(sources.certificate),
                _content(sources.key),
                _content(sources.authority),
            )
        except OSError as error:
            if self._cached is not None:
                return self._cached
            why = f"{error.filename}: {error.strerror}"
            raise CredentialsError("a credentials file can't be read", why=why) from error

    def _token(self) -> str:
        path, token = self._sources.token_file, self._sources.token
        if path is None:
            return token
        try:
            return path.read_text(errors="replace").strip() or token
        except OSError:
            if self._cached is None and token:
                return token
            raise


def authorization(token: str, username: str = "", password: str = "") -> str:
    """The value of the Authorization header, or "". Raises CredentialsError, which never quotes the token."""
    if token:
        if not (token.isascii() and token.isprintable()):
            raise CredentialsError("the token is invalid: it contains line breaks or other illegal characters")
        return f"Bearer {token}"
    if username or password:
        return "Basic " + b64encode(f"{username}:{password}".encode()).decode()
    return ""


def _content(source: bytes | Path) -> bytes:
    return source.read_bytes() if isinstance(source, Path) else source
