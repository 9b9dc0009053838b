"""The containers' access to the API: its address, and tokens of their pod's service account.

A token is a file in a projected volume. It is requested when the volume is created, and renewed after most of its
lifetime. The token itself contains its times, so no further state is stored.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Forbidden
from tarragon.kube.codec import decode
from tarragon.localcluster.home.home import write_private_file
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod

ROOT_BUNDLE = "kube-root-ca.crt"
"""The ConfigMap with the certificate authority of the API server."""
CHECK_SECONDS = 60.0
DEFAULT_SECONDS = 3600
RENEW_AFTER_FRACTION = 0.8
"""The part of its lifetime after which a token is renewed."""
MAX_RENEW_SECONDS = 24 * 3600.0
"""A token is renewed after this long, however long its lifetime is."""

_KUBELET = '"system:node:'
"""In the refusal of a request by a kubelet's identity."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, order=True)
class TokenProjection:
    """The token that a volume requests. An empty audience is the API server itself."""

    audience: str
    seconds: int


@dataclass(frozen=True, slots=True)
class _TokenFile:
    """A token file to renew."""

    file: Path
    wish: TokenProjection


class TokenIssuer(Protocol):
    async def token(self, pod: Pod, wish: TokenProjection) -> str:
        """Request a token of the pod's service account, bound to the pod. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """The API as containers reach it.

    `certificate_authority` is in PEM, for namespaces that do not have its ConfigMap yet.
    """

    host: str
    port: int
    certificate_authority: bytes
    tokens: TokenIssuer

    def variables(self) -> dict[str, str]:
        """The KUBERNETES_* variables that every container has."""
        values = {"HOST": self.host, "PORT": str(self.port), "PORT_HTTPS": str(self.port)}
        service = {f"KUBERNETES_SERVICE_{name}": value for name, value in values.items()}
        return {**service, "KUBERNETES_PORT": f"tcp://{self.host}:{self.port}"}


def token_spec(source: Mapping[str, Any]) -> TokenProjection:
    return TokenProjection(str(source.get("audience") or ""), int(source.get("expirationSeconds") or DEFAULT_SECONDS))


def token_specs(pod: Pod) -> set[TokenProjection]:
    return {wish for _, _, wish in _files(pod)}


async def request_tokens(pod: Pod, source: TokenIssuer | None) -> dict[TokenProjection, bytes]:
    """Request all tokens that the pod's volumes need. Raises ApiError.

    Those that may not be requested are left out: whose account runs the node decides about that, not the pod. A
    kubelet's own identity may, as soon as the API server has seen that the pod is on its node: it has to try again.
    """
    if source is None:
        return {}
    tokens: dict[TokenProjection, bytes] = {}
    for wish in sorted(token_specs(pod)):
        try:
            tokens[wish] = (await source.token(pod, wish)).encode()
        except Forbidden as error:
            if _KUBELET in str(error):
                raise
            _log.warning(
                "a pod starts without the token of its service account",
                pod=str(pod.metadata.key),
                why=error.summary,
                remedy="tarragon docs process-node#permissions says which role it needs",
            )
    return tokens


class TokenRenewer:
    """Renews the tokens in the volumes of running pods."""

    def __init__(self, source: TokenIssuer, folder: NodeFolder, clock: Clock) -> None:
        self._source = source
        self._folder = folder
        self._clock = clock
        self._due: dict[str, dict[_TokenFile, float | None]] = {}

    async def run(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """Renew tokens until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            await self.renew(list(pods()))

    async def renew(self, pods: Iterable[Pod]) -> None:
        """Renew all tokens that are due. A file is read until it exists; then its due time is kept."""
        now = self._clock.now().timestamp()
        by_uid = {pod.metadata.uid: pod for pod in pods}
        unread = [pod for uid, pod in by_uid.items() if uid not in self._due or None in self._due[uid].values()]
        read = await asyncio.to_thread(self._read, unread) if unread else {}
        self._due = {uid: due for uid, due in (self._due | read).items() if uid in by_uid}
        for uid, due in self._due.items():
            for token_file in [file for file, moment in due.items() if moment is not None and moment <= now]:
                due[token_file] = await self._renew(by_uid[uid], token_file)

    def _read(self, pods: Iterable[Pod]) -> dict[str, dict[_TokenFile, float | None]]:
        """When the token files of each pod are due, by uid; None for a missing file."""
        due: dict[str, dict[_TokenFile, float | None]] = {}
        for pod in pods:
            volumes = self._folder.pod(pod.metadata.uid).volumes
            files = [_TokenFile(volumes / volume / name, wish) for volume, name, wish in _files(pod)]
            due[pod.metadata.uid] = {token_file: _due(token_file.file) for token_file in files}
        return due

    async def _renew(self, pod: Pod, token_file: _TokenFile) -> float | None:
        try:
            token = await self._source.token(pod, token_file.wish)
            await asyncio.to_thread(_write, token_file.file, token.encode())
        except (ApiError, OSError) as error:
            _log.warning("a token of a pod could not be renewed", pod=str(pod.metadata.key), error=str(error))
            return None
        return _due_of(token.encode())


def _files(pod: Pod) -> Iterator[tuple[str, str, TokenProjection]]:
    """The token files of a pod: the volume, the path in it, and the requested token."""
    for volume in pod.spec.volumes:
        for part in (volume.get("projected") or {}).get("sources") or []:
            if source := part.get("serviceAccountToken"):
                yield str(volume["name"]), str(source.get("path") or ""), token_spec(source)


def _write(file: Path, token: bytes) -> None:
    """Write to the target of the volume's links, which stay."""
    write_private_file(file.resolve(), token)


def _due(file: Path) -> float | None:
    """When the token in a file is to be renewed; None without one: its volume is not created yet, or the user's own."""
    try:
        return _due_of(file.read_bytes())
    except OSError:
        return None


class _Claims(msgspec.Struct):
    iat: float = 0.0
    exp: float = 0.0


def _due_of(token: bytes) -> float | None:
    parts = token.split(b".")
    try:
        text = parts[1] + b"=" * (-len(parts[1]) % 4)
        claims = decode(base64.urlsafe_b64decode(text), _Claims)
    except (IndexError, ValueError, msgspec.MsgspecError):
        return None
    return claims.iat + min((claims.exp - claims.iat) * RENEW_AFTER_FRACTION, MAX_RENEW_SECONDS)
