"""At the door: whose request this is, and in whose name it is made."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.identity import MASTERS, OWNER, User
from tarragon.localcluster.api.requests import Check
from tarragon.localcluster.auth import messages
from tarragon.localcluster.auth.access import Access
from tarragon.localcluster.auth.accounts import Known, account_groups
from tarragon.localcluster.auth.attributes import Attributes
from tarragon.localcluster.auth.default_roles import AUTHENTICATED, UNAUTHENTICATED
from tarragon.localcluster.auth.escalation import Escalation
from tarragon.localcluster.auth.roles import ACCOUNT_PREFIX
from tarragon.localcluster.kinds.resource import Served

ANONYMOUS = "system:anonymous"
_BEARER = "Bearer "
_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-"
_AUTHENTICATION = "authentication.k8s.io"

Headers = CIMultiDictProxy[str]


class Entrance:
    """Lets in the owner of the home by its `token`, and service accounts by theirs.

    Without `access` nobody else is known, and whoever is let in may do everything.
    """

    def __init__(self, token: str, access: Access | None) -> None:
        self._expected = f"{_BEARER}{token}".encode()
        self._access = access

    def enter(self, headers: Headers) -> User:
        """Whoever the request is to be judged as. Raises 401; 403 where one may not act for the other."""
        user = self._known(headers.get("Authorization", ""))
        return self._in_the_name_of(user, headers)

    def is_open_to(self, user: User) -> bool:
        """Whether the user may do everything, whatever roles say: then nobody need ask what it is."""
        return self._access is None or MASTERS in user.groups

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Raises Forbidden."""
        if self._access is None:
            return
        answer = self._access.authorizer.authorize(user, wanted)
        if not answer.is_allowed:
            raise messages.forbidden(user, wanted, answer.reason)

    def check(self, user: User) -> Check | None:
        """What is to be asked of each object that the user writes."""
        if self._access is None or self.is_open_to(user):
            return None
        return Escalation(user, self._access.roles, self._access.authorizer).check

    def check_of_change(self, user: User) -> Check | None:
        """The same of a PUT or a PATCH: one that makes what is not there needs what a create needs."""
        check = self.check(user)
        if check is None:
            return None

        def change(served: Served, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
            if old is None:
                self.authorize(user, _creation(served, new["metadata"]))
            check(served, new, old)

        return change

    def _known(self, given: str) -> User:
        """In constant time: an answer must not tell how much of a guess was right."""
        if hmac.compare_digest(given.encode(errors="surrogateescape"), self._expected):
            return OWNER
        scheme, _, token = given.partition(" ")
        if self._access is not None and scheme.lower() == _BEARER.strip().lower() and token.count(".") > 1:
            judged = self._access.accounts.judge(token.strip())
            if isinstance(judged, Known):
                return judged.user
        raise messages.unauthorized()

    def _in_the_name_of(self, user: User, headers: Headers) -> User:
        wanted = _named(headers)
        if wanted is None:
            return user
        for needed in _needed(wanted):
            self.authorize(user, needed)
        return _completed(wanted)


def _creation(served: Served, metadata: Mapping[str, Any]) -> Attributes:
    return Attributes(
        verb="create",
        group=served.group,
        version=served.version,
        resource=served.plural,
        namespace=metadata.get("namespace", "") if served.namespaced else "",
        name=metadata.get("name", ""),
    )


def _named(headers: Headers) -> User | None:
    """Whom the headers name, just as they do. None when nobody. Raises for what makes no sense."""
    extra: dict[str, tuple[str, ...]] = {}
    for name in headers:
        if name.lower().startswith(_EXTRA.lower()):
            extra[unquote(name[len(_EXTRA) :].lower())] = tuple(headers.getall(name))
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = tuple(headers.getall(_GROUP, ()))
    if not name:
        if groups or uid or extra:
            raise _nobody(groups, uid, extra)
        return None
    return User(name=name, groups=groups, uid=uid, extra=extra)


def _needed(wanted: User) -> Iterator[Attributes]:
    """What one must be allowed to act in that name."""
    account = _account(wanted.name)
    if account is not None:
        namespace, name = account
        yield Attributes(verb="impersonate", version="v1", resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield Attributes(verb="impersonate", version="v1", resource="users", name=wanted.name)
    for group in wanted.groups:
        yield Attributes(verb="impersonate", version="v1", resource="groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield _of_authentication("userextras", value, key)
    if wanted.uid:
        yield _of_authentication("uids", wanted.uid, "")


def _of_authentication(resource: str, name: str, subresource: str) -> Attributes:
    return Attributes(
        verb="impersonate",
        group=_AUTHENTICATION,
        version="v1",
        resource=resource,
        subresource=subresource,
        name=name,
    )


def _completed(wanted: User) -> User:
    """With the groups that everybody of that name is in."""
    groups = wanted.groups
    account = _account(wanted.name)
    if account is not None and not groups:
        groups = account_groups(account[0])
    if not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups = (*groups, UNAUTHENTICATED if wanted.name == ANONYMOUS else AUTHENTICATED)
    return User(name=wanted.name, groups=groups, uid=wanted.uid, extra=wanted.extra)


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account."""
    namespace, is_account, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
    if not name.startswith(ACCOUNT_PREFIX) or not (namespace and is_account and account) or ":" in account:
        return None
    return namespace, account


def _nobody(groups: tuple[str, ...], uid: str, extra: Mapping[str, tuple[str, ...]]) -> ApiError:
    asked = [
        *(f"group {group}" for group in groups),
        *([f"uid {uid}"] if uid else []),
        *(f"extra {key}" for key in extra),
    ]
    return errors.internal(f"requested {', '.join(asked)} without impersonating a user")
