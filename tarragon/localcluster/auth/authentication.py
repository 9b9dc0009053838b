"""Authentication: finds out which user a request comes from, and which user it impersonates.

There is no authorization. An embedded cluster belongs to one user of one machine, so every authenticated request is
allowed.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.user import AUTHENTICATED, HOME_OWNER, UNAUTHENTICATED, User
from tarragon.localcluster.auth.service_account_tokens import (
    ACCOUNT_PREFIX,
    Authenticated,
    TokenAuthority,
    account_groups,
)

ANONYMOUS = "system:anonymous"
_BEARER = "Bearer "
_IMPERSONATE = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-"

Headers = CIMultiDictProxy[str]


class Authenticator:
    """Authenticates the owner of the home by the home's `token`, and service accounts by the tokens issued to them.

    Without `accounts` only the home's token is accepted.
    """

    def __init__(self, token: str, accounts: TokenAuthority | None) -> None:
        self._expected = f"{_BEARER}{token}".encode()
        self._accounts = accounts

    def authenticate(self, headers: Headers) -> User:
        """Return the user of a request. Raises 401 for unknown credentials and 500 for incomplete impersonation."""
        user = self._authenticated(headers.get("Authorization", ""))
        impersonated = _impersonated(headers)
        return user if impersonated is None else _with_default_groups(impersonated)

    def _authenticated(self, given: str) -> User:
        """Compare in constant time, so that timing reveals nothing about the token."""
        if hmac.compare_digest(given.encode(errors="surrogateescape"), self._expected):
            return HOME_OWNER
        scheme, _, token = given.partition(" ")
        if self._accounts is not None and scheme.lower() == _BEARER.strip().lower() and token.count(".") > 1:
            judged = self._accounts.verify(token.strip())
            if isinstance(judged, Authenticated):
                return judged.user
        raise errors.failure(401, "Unauthorized", "Unauthorized")


def _impersonated(headers: Headers) -> User | None:
    """Return the user that the headers name, exactly as named; None when they name no user."""
    if not any(name[: len(_IMPERSONATE)].lower() == _IMPERSONATE for name in headers):
        return None
    extra: dict[str, tuple[str, ...]] = {}
    for name in headers:
        if name.lower().startswith(_EXTRA.lower()):
            extra[unquote(name[len(_EXTRA) :].lower())] = tuple(headers.getall(name))
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = tuple(headers.getall(_GROUP, ()))
    if not name:
        if groups or uid or extra:
            raise _without_user(groups, uid, extra)
        return None
    return User(name=name, groups=groups, uid=uid, extra=extra)


def _with_default_groups(user: User) -> User:
    """Add the groups that Kubernetes derives from the user's name."""
    groups = user.groups
    namespace = _account_namespace(user.name)
    if namespace and not groups:
        groups = account_groups(namespace)
    if not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups = (*groups, UNAUTHENTICATED if user.name == ANONYMOUS else AUTHENTICATED)
    return User(name=user.name, groups=groups, uid=user.uid, extra=user.extra)


def _account_namespace(name: str) -> str:
    """Return the namespace of the service account with this user name; an empty string for any other user."""
    namespace, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
    is_account = name.startswith(ACCOUNT_PREFIX) and bool(account) and ":" not in account
    return namespace if is_account else ""


def _without_user(groups: tuple[str, ...], uid: str, extra: Mapping[str, tuple[str, ...]]) -> ApiError:
    asked = [
        *(f"group {group}" for group in groups),
        *([f"uid {uid}"] if uid else []),
        *(f"extra {key}" for key in extra),
    ]
    return errors.internal(f"requested {', '.join(asked)} without impersonating a user")
