"""How containers reach the API by themselves: where it is, and tokens of their pod's service account.

A token is a file of a projected volume. It is asked for when the volume is made, and again when most of its time is
over; the file itself says when that is, so that nothing has to be remembered.
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
from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode
from tarragon.localcluster.home.home import write_private
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod

ROOT_BUNDLE = "kube-root-ca.crt"
"""The config map by which pods know the API server."""
LOOK_SECONDS = 60.0
DEFAULT_SECONDS = 3600
RENEWED_AFTER = 0.8
"""Of a token's time."""
LONGEST_SECONDS = 24 * 3600.0
"""After this long a token is renewed, however long it would last."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, order=True)
class Wish:
    """What a volume asks of a token. An empty audience is the API server itself."""

    audience: str
    seconds: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A token that is kept fresh."""

    file: Path
    wish: Wish


class TokenSource(Protocol):
    async def token(self, pod: Pod, wish: Wish) -> str:
        """A token of the pod's account that counts as long as the pod is there. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PodApi:
    """`authority` is PEM: for a namespace that was made a moment ago, and has not got its config map of it yet."""

    host: str
    port: int
    authority: bytes
    tokens: TokenSource

    def variables(self) -> dict[str, str]:
        """As every container of every Kubernetes has them."""
        place = {"HOST": self.host, "PORT": str(self.port), "PORT_HTTPS": str(self.port)}
        whole = {f"KUBERNETES_SERVICE_{name}": value for name, value in place.items()}
        return {**whole, "KUBERNETES_PORT": f"tcp://{self.host}:{self.port}"}


def wish_of(source: Mapping[str, Any]) -> Wish:
    return Wish(str(source.get("audience") or ""), int(source.get("expirationSeconds") or DEFAULT_SECONDS))


def wishes(pod: Pod) -> set[Wish]:
    return {wish for _, _, wish in _files(pod)}


async def tokens_for(pod: Pod, source: TokenSource | None) -> dict[Wish, bytes]:
    """Raises ApiError."""
    if source is None:
        return {}
    return {wish: (await source.token(pod, wish)).encode() for wish in sorted(wishes(pod))}


class TokenKeeper:
    """Renews the tokens in the volumes of pods that run."""

    def __init__(self, source: TokenSource, folder: NodeFolder, clock: Clock) -> None:
        self._source = source
        self._folder = folder
        self._clock = clock
        self._due: dict[str, dict[_Kept, float | None]] = {}

    async def run(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.renew(list(pods()))

    async def renew(self, pods: Iterable[Pod]) -> None:
        """All that are due. Files are read until they are there, those of all pods together."""
        now = self._clock.now().timestamp()
        found = {pod.metadata.uid: pod for pod in pods}
        fresh = [pod for uid, pod in found.items() if uid not in self._due or None in self._due[uid].values()]
        read = await asyncio.to_thread(self._read, fresh) if fresh else {}
        self._due = {uid: due for uid, due in (self._due | read).items() if uid in found}
        for uid, due in self._due.items():
            for kept in [kept for kept, moment in due.items() if moment is not None and moment <= now]:
                due[kept] = await self._renew(found[uid], kept)

    def _read(self, pods: Iterable[Pod]) -> dict[str, dict[_Kept, float | None]]:
        """When the tokens of each pod are due; None of what is not there."""
        found: dict[str, dict[_Kept, float | None]] = {}
        for pod in pods:
            volumes = self._folder.pod(pod.metadata.uid).volumes
            files = [_Kept(volumes / volume / name, wish) for volume, name, wish in _files(pod)]
            found[pod.metadata.uid] = {kept: _due(kept.file) for kept in files}
        return found

    async def _renew(self, pod: Pod, kept: _Kept) -> float | None:
        try:
            token = await self._source.token(pod, kept.wish)
            await asyncio.to_thread(_write, kept.file, token.encode())
        except (ApiError, OSError) as error:
            _log.warning("a token of a pod could not be renewed", pod=str(pod.metadata.key), error=str(error))
            return None
        return _due_of(token.encode())


def _files(pod: Pod) -> Iterator[tuple[str, str, Wish]]:
    """Volume, path in it, and what is asked of the token there."""
    for volume in pod.spec.volumes:
        for part in (volume.get("projected") or {}).get("sources") or []:
            if source := part.get("serviceAccountToken"):
                yield str(volume["name"]), str(source.get("path") or ""), wish_of(source)


def _write(file: Path, token: bytes) -> None:
    """Where the links of the volume lead to: they stay."""
    write_private(file.resolve(), token)


def _due(file: Path) -> float | None:
    """When the token in a file is to be renewed; None when there is none: its volume was not made, or given."""
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
    return claims.iat + min((claims.exp - claims.iat) * RENEWED_AFTER, LONGEST_SECONDS)
