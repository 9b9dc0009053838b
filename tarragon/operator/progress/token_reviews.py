"""Authenticates the pod that reports: its token is bound to it, for our audience, and reviewed by the API server."""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.port import Client
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, PartialObject, Resource
from tarragon.plan.objects.progress import AUDIENCE

CACHE_SECONDS = 600.0
"""How long an accepted token is trusted without another review. Whether its pod still exists is checked each time."""
MAX_CACHED = 20_000
MAX_TOKEN_LENGTH = 16 * 1024
_PARTS = 3
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"


class _UserInfo(PartialObject, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Status(PartialObject, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    audiences: list[str] = []
    error: str = ""


class TokenReview(PartialObject, frozen=True):
    status: _Status = _Status()


TOKEN_REVIEWS = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    model=TokenReview,
    namespaced=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """The pod that a token is bound to."""

    key: Key
    uid: str


class _Bound(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Binding(msgspec.Struct):
    namespace: str = ""
    pod: _Bound = msgspec.field(default_factory=_Bound)


class _Claims(msgspec.Struct):
    aud: list[str] = msgspec.field(default_factory=list)
    exp: float = 0.0
    binding: _Binding = msgspec.field(default_factory=_Binding, name="kubernetes.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedToken:
    """A token and what it says of itself, which nobody has verified yet."""

    token: str
    pod: PodIdentity
    expires_at: float


def read_claims(token: str) -> ClaimedToken | None:
    """Read the claims of a token without verifying them. None if it cannot be a token of a pod for our audience.

    This spares the API server the review of most tokens that it would reject.
    """
    parts = token.split(".")
    if len(parts) != _PARTS or len(token) > MAX_TOKEN_LENGTH:
        return None
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = decode(text, _Claims)
    except (ValueError, msgspec.MsgspecError):
        return None
    bound = claims.binding.pod
    if AUDIENCE not in claims.aud or not bound.uid:
        return None
    pod = PodIdentity(key=Key(claims.binding.namespace, bound.name), uid=bound.uid)
    return ClaimedToken(token=token, pod=pod, expires_at=claims.exp)


class TokenReviewer:
    """Asks the API server about tokens, and remembers those that it accepted."""

    def __init__(self, cluster: Client, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._trusted_until: OrderedDict[bytes, float] = OrderedDict()

    async def is_valid(self, claimed: ClaimedToken) -> bool:
        """Whether the API server says that the token is of our audience and bound to that pod. Raises ApiError."""
        if self._clock.now().timestamp() >= claimed.expires_at:
            return False
        if self.is_remembered(claimed):
            return True
        if not _confirms(await self._review(claimed.token), claimed.pod):
            return False
        self._trust(_digest(claimed))
        return True

    def is_remembered(self, claimed: ClaimedToken) -> bool:
        """Whether the API server has accepted this very token a short time ago."""
        return self._clock.monotonic() < self._trusted_until.get(_digest(claimed), 0.0)

    async def _review(self, token: str) -> TokenReview:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
        return await self._cluster.create(TOKEN_REVIEWS, body)

    def _trust(self, digest: bytes) -> None:
        self._trusted_until[digest] = self._clock.monotonic() + CACHE_SECONDS
        self._trusted_until.move_to_end(digest)
        if len(self._trusted_until) > MAX_CACHED:
            self._trusted_until.popitem(last=False)


def _digest(claimed: ClaimedToken) -> bytes:
    return hashlib.sha256(claimed.token.encode(errors="surrogateescape")).digest()


def _confirms(review: TokenReview, pod: PodIdentity) -> bool:
    status = review.status
    extra = status.user.extra
    account_prefix = f"system:serviceaccount:{pod.key.namespace}:"
    return (
        status.authenticated
        and AUDIENCE in status.audiences
        and status.user.username.startswith(account_prefix)
        and extra.get(_POD_NAME) == [pod.key.name]
        and extra.get(_POD_UID) == [pod.uid]
    )
