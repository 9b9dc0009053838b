"""Who a client is, asked anew before each request, so that tokens and certificates may change while it runs."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tarragon.base.clock import Clock
from tarragon.client.errors import NoCredentials

REREAD_SECONDS = 60.0
"""A service account's token is replaced when 80 % of its hour have gone: a minute is soon enough."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a client shows: a header, a certificate with its key (PEM) in the handshake, both, or nothing.

    `authority` is whom it trusts, where that is known better than when the client was made.
    """

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    authority: bytes = field(default=b"", repr=False)


class Credentials(Protocol):
    """Where identities come from."""

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The one to show now. `refused` is one that the server has just turned away: it is looked for anew.

        Raises NoCredentials.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that never change."""

    held: Identity

    async def identity(self, refused: Identity | None = None) -> Identity:  # noqa: ARG002 - there is no other one
        return self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where each part comes from: data as it is, a path to be read. The token holds until its file could be read."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: bytes | Path = b""
    key: bytes | Path = field(default=b"", repr=False)
    authority: bytes | Path = b""


class FromFiles:
    """Files are read again each minute, and when the server refuses what they said. What was read last holds until
    then, also when the file is gone for a moment: whoever replaces it may not be done.
    """

    def __init__(self, sources: Sources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._held: Identity | None = None
        self._read_at = 0.0

    async def identity(self, refused: Identity | None = None) -> Identity:
        now = self._clock.monotonic()
        if self._held is None or refused == self._held or now - self._read_at >= REREAD_SECONDS:
            self._held = self._read()
            self._read_at = now
        return self._held

    def _read(self) -> Identity:
        sources = self._sources
        try:
            return Identity(
                authorization(self._token(), sources.username, sources.password),
                _content(sources.certificate),
                _content(sources.key),
                _content(sources.authority),
            )
        except OSError as error:
            if self._held is not None:
                return self._held
            why = f"{error.filename}: {error.strerror}"
            raise NoCredentials("a file of your credentials can't be read", why=why) from error

    def _token(self) -> str:
        path, token = self._sources.token_file, self._sources.token
        if path is None:
            return token
        try:
            return path.read_text(errors="replace").strip() or token
        except OSError:
            if self._held is None and token:
                return token
            raise


def authorization(token: str, username: str = "", password: str = "") -> str:
    """The header's value; empty when there is nothing to say. Raises NoCredentials, in which the token is not told."""
    if token:
        if not (token.isascii() and token.isprintable()):
            raise NoCredentials("your token is none: it has line ends or other characters in it that no token has")
        return f"Bearer {token}"
    if username or password:
        return "Basic " + b64encode(f"{username}:{password}".encode()).decode()
    return ""


def _content(source: bytes | Path) -> bytes:
    return source.read_bytes() if isinstance(source, Path) else source
