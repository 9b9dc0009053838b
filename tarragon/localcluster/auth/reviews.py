"""Reviews: answers about who a user is and what a user may do. Every authenticated user may do everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, RequestTarget
from tarragon.localcluster.api.user import User
from tarragon.localcluster.auth.service_account_tokens import ISSUER, Authenticated, TokenAuthority
from tarragon.localcluster.auth.token_requests import TokenRequests
from tarragon.localcluster.registry.computed import ComputedKind, FullName
from tarragon.localcluster.registry.strategy import decode_object

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
_EVERYTHING = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def reviews(accounts: TokenAuthority) -> Mapping[FullName, ComputedKind]:
    """Return what answers requests for each review, and for tokens of service accounts."""
    return {
        (_AUTHORIZATION, "selfsubjectaccessreviews"): AccessReview(),
        (_AUTHORIZATION, "subjectaccessreviews"): AccessReview(),
        (_AUTHORIZATION, "localsubjectaccessreviews"): AccessReview(),
        (_AUTHORIZATION, "selfsubjectrulesreviews"): RulesReview(),
        (_AUTHENTICATION, "selfsubjectreviews"): SelfReview(),
        (_AUTHENTICATION, "tokenreviews"): TokenReview(accounts),
        ("", "serviceaccounts/token"): TokenRequests(accounts),
    }


class AccessReview(ComputedKind):
    """Says that a user may do something: `kubectl auth can-i`, and a node that checks who reads its logs."""

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:  # noqa: ARG002 - true for every user
        _spec(target, body)
        return _answer(target, body, {"allowed": True})


class RulesReview(ComputedKind):
    """Lists what the user may do in a namespace: `kubectl auth can-i --list`."""

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:  # noqa: ARG002 - true for every user
        if not _spec(target, body).get("namespace"):
            raise errors.bad_request("no namespace on request")
        return {**_answer(target, body, _EVERYTHING), "spec": {}}


class SelfReview(ComputedKind):
    """Says who the user of the request is: `kubectl auth whoami`."""

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:
        return _answer(target, body, {"userInfo": _user_info(user)})


@dataclass(frozen=True, slots=True)
class TokenReview(ComputedKind):
    """Says which user a token authenticates."""

    accounts: TokenAuthority

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:  # noqa: ARG002 - it is about another
        spec = _spec(target, body)
        token = str(spec.get("token") or "")
        if not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        judged = self.accounts.verify(token, _texts(spec.get("audiences")) or (ISSUER,))
        if isinstance(judged, Authenticated):
            status = {"authenticated": True, "user": _user_info(judged.user), "audiences": list(judged.audiences)}
        else:
            status = {"user": {}, "error": judged.why}
        return _answer(target, body, status)


def _spec(target: RequestTarget, body: Json) -> Json:
    """Return the review's spec. Raises BadRequest when the body does not have the shape of its kind."""
    decode_object(target.served, body)
    return _object(body, "spec")


def _answer(target: RequestTarget, body: Json, status: Mapping[str, Any]) -> Json:
    """Return the review with its status."""
    served = target.served
    metadata = {**_object(body, "metadata"), "creationTimestamp": None}
    return {
        "kind": served.kind,
        "apiVersion": served.api_version,
        "metadata": metadata,
        **({"spec": body["spec"]} if "spec" in body else {}),
        "status": dict(status),
    }


def _user_info(user: User) -> Json:
    return {
        "username": user.name,
        **({"uid": user.uid} if user.uid else {}),
        **({"groups": list(user.groups)} if user.groups else {}),
        **({"extra": {key: list(values) for key, values in user.extra.items()}} if user.extra else {}),
    }


def _object(of: Mapping[str, Any], name: str) -> Json:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _texts(found: Sequence[Any] | None) -> tuple[str, ...]:
    return tuple(map(str, found or ()))
