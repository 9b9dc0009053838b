"""Service account tokens: issues them, and authenticates requests that carry one.

Issued tokens are not stored. A token is valid until it expires, as long as its service account has the same UID and the
pod, secret or node that it is bound to exists. That is looked up at each request.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarragon.base.clock import Clock
from tarragon.kube.codec import decode
from tarragon.localcluster.api.user import AUTHENTICATED, User
from tarragon.localcluster.auth.keys import ALGORITHM, Claims, SigningKey
from tarragon.localcluster.storage.watch_cache import WatchCache

ISSUER = "https://kubernetes.default.svc"
"""The issuer of most clusters. It is also the audience of this API server, and the default audience of tokens."""
ACCOUNT_PREFIX = "system:serviceaccount:"
LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY = "kubernetes.io/serviceaccount/"
_BINDING = "kubernetes.io"
_EXTRA = "authentication.kubernetes.io/"
_CACHED_TOKENS = 2_000
_PLURALS = {"pod": "pods", "secret": "secrets", "node": "nodes"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpec:
    """The contents of a token to issue. `bound_kind` is `pod`, `secret`, `node` or empty."""

    namespace: str
    account: str
    audiences: Sequence[str] = (ISSUER,)
    seconds: int = 3600
    bound_kind: str = ""
    bound: Mapping[str, str] = field(default_factory=dict)
    node: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The user that a valid token authenticates, and those of the requested audiences that it is for."""

    user: User
    audiences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InvalidToken:
    """The reason why a token is invalid. Only reviews show it; a rejected client is not told."""

    why: str


class TokenAuthority:
    """Issues tokens, and checks them against the objects that are stored now."""

    def __init__(self, shelf: Callable[[str], WatchCache], key: SigningKey, clock: Clock) -> None:
        self.key = key
        self._shelf = shelf
        self._clock = clock
        self._claims_of: dict[bytes, Claims | None] = {}

    def issue(self, grant: TokenSpec) -> tuple[str, int]:
        """Return the token, and its expiry in seconds since the epoch. The service account must exist."""
        account = self.stored("serviceaccounts", grant.namespace, grant.account)
        assert account is not None  # noqa: S101 - the caller has looked
        now = int(self._clock.now().timestamp())
        about: Json = {
            "namespace": grant.namespace,
            "serviceaccount": {"name": grant.account, "uid": account["metadata"]["uid"]},
        }
        if grant.bound_kind:
            about[grant.bound_kind] = dict(grant.bound)
        if grant.node:
            about["node"] = dict(grant.node)
        claims = {
            "aud": list(grant.audiences),
            "exp": now + grant.seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": secrets.token_hex(16),
            _BINDING: about,
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{grant.namespace}:{grant.account}",
        }
        return self.key.sign(claims), now + grant.seconds

    def issue_for_secret(self, namespace: str, account: Mapping[str, Any], secret: str) -> str:
        """Return the token of a Secret, which is valid as long as the Secret contains it."""
        values = {
            "namespace": namespace,
            "secret.name": secret,
            "service-account.name": account["name"],
            "service-account.uid": account["uid"],
        }
        claims = {f"{LEGACY}{name}": value for name, value in values.items()}
        subject = f"{ACCOUNT_PREFIX}{namespace}:{account['name']}"
        return self.key.sign({"iss": LEGACY_ISSUER, **claims, "sub": subject})

    def verify(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> Authenticated | InvalidToken:
        """Return the user of a token that is valid for one of the audiences."""
        claims = self._claims(token)
        if claims is None:
            return InvalidToken("invalid bearer token")
        if claims.get("iss") == LEGACY_ISSUER:
            return self._judge_secret_token(token, claims, audiences)
        if claims.get("iss") != ISSUER:
            return InvalidToken("invalid bearer token")
        given = claims.get("aud") or []
        matching = tuple(audience for audience in audiences if audience in given)
        if not matching:
            lists = (_listed(given), _listed(audiences))
            why = "token audiences {} is invalid for the target audiences {}".format(*lists)
            return InvalidToken(f"[invalid bearer token, {why}]")
        if why := self._invalidity(claims):
            return InvalidToken(f"[invalid bearer token, {why}]")
        return Authenticated(_user(claims[_BINDING], str(claims.get("jti", ""))), matching)

    def stored(self, plural: str, namespace: str, name: str) -> Json | None:
        """Return a stored object that a token refers to; None when it does not exist."""
        found = self._shelf(plural).objects.get((namespace, name))
        return None if found is None else decode(found.body, dict)

    def now(self) -> dt.datetime:
        return self._clock.now()

    def _claims(self, token: str) -> Claims | None:
        """Return the claims of a token. They are cached: to check a signature takes longer than all the rest."""
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        if digest not in self._claims_of:
            if len(self._claims_of) >= _CACHED_TOKENS:
                self._claims_of.clear()
            self._claims_of[digest] = self.key.read(token)
        return self._claims_of[digest]

    def _invalidity(self, claims: Claims) -> str:
        """Return why a token of ours is no longer valid; an empty string if it is valid."""
        now = self._clock.now().timestamp()
        if now >= claims.get("exp", 0):
            return "service account token has expired"
        if now < claims.get("nbf", 0) - 60:  # tolerates a clock that was set back
            return "service account token is not valid yet"
        about = claims.get(_BINDING) or {}
        namespace = str(about.get("namespace", ""))
        if not self._is_same("serviceaccounts", namespace, about.get("serviceaccount") or {}):
            return "service account token has been invalidated"
        for kind in ("pod", "secret"):
            if about.get(kind) and not self._is_same(_PLURALS[kind], namespace, about[kind]):
                return "service account token has been invalidated"
        is_bound_to_node = about.get("node") and not about.get("pod")
        if is_bound_to_node and not self._is_same("nodes", "", about["node"]):
            return "service account token has been invalidated"
        return ""

    def _judge_secret_token(self, token: str, claims: Claims, audiences: Sequence[str]) -> Authenticated | InvalidToken:
        def claim(name: str) -> str:
            return str(claims.get(f"{LEGACY}{name}", ""))

        namespace, account = claim("namespace"), {"name": claim("service-account.name")}
        account["uid"] = claim("service-account.uid")
        secret = self._shelf("secrets").objects.get((namespace, claim("secret.name")))
        stored = decode(secret.body, dict) if secret is not None else {}
        current = base64.b64decode((stored.get("data") or {}).get("token", "")).decode(errors="replace")
        is_ending = bool((stored.get("metadata") or {}).get("deletionTimestamp"))
        if is_ending or not hmac.compare_digest(current.encode(), token.encode(errors="surrogateescape")):
            return InvalidToken("[invalid bearer token, service account token has been invalidated]")
        if not self._is_same("serviceaccounts", namespace, account):
            return InvalidToken("[invalid bearer token, service account token has been invalidated]")
        matching = tuple(audience for audience in audiences if audience == ISSUER)
        if not matching:
            return InvalidToken("invalid bearer token")
        return Authenticated(_user({"namespace": namespace, "serviceaccount": account}, ""), matching)

    def _is_same(self, plural: str, namespace: str, named: Mapping[str, Any]) -> bool:
        found = self.stored(plural, namespace, str(named.get("name", "")))
        return found is not None and bool(found["metadata"]["uid"] == named.get("uid"))


def account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def _user(about: Mapping[str, Any], identity: str) -> User:
    namespace, account = str(about["namespace"]), about["serviceaccount"]
    extra: dict[str, tuple[str, ...]] = {}
    if identity:
        extra[f"{_EXTRA}credential-id"] = (f"JTI={identity}",)
    for kind in ("node", "pod"):
        if about.get(kind):
            extra[f"{_EXTRA}{kind}-name"] = (str(about[kind].get("name", "")),)
            if about[kind].get("uid"):
                extra[f"{_EXTRA}{kind}-uid"] = (str(about[kind]["uid"]),)
    return User(
        name=f"{ACCOUNT_PREFIX}{namespace}:{account['name']}",
        uid=str(account["uid"]),
        groups=(*account_groups(namespace), AUTHENTICATED),
        extra=extra,
    )


def _listed(audiences: Sequence[str]) -> str:
    return "[" + " ".join(f'"{audience}"' for audience in audiences) + "]"


# ------------------------------------------------------------------------------------- OpenID Connect discovery


def openid_configuration(url: str) -> Json:
    """Return the document by which others find the keys that verify tokens. `url` is this server's address."""
    return {
        "issuer": ISSUER,
        "jwks_uri": f"{url}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def published_keys(accounts: TokenAuthority) -> Json:
    """Return the JSON Web Key Set of the public key that verifies tokens."""
    return {"keys": [accounts.key.published()]}
