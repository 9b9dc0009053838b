"""The reviews: what somebody may do, and who somebody is, as answers of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.identity import User
from tarragon.localcluster.api.requests import Json, Target
from tarragon.localcluster.auth.accounts import ISSUER, Accounts, Known
from tarragon.localcluster.auth.attributes import Attributes
from tarragon.localcluster.auth.authorizers import Authorizer
from tarragon.localcluster.auth.token_requests import TokenRequests
from tarragon.localcluster.registry.computed import Computed, FullName
from tarragon.localcluster.registry.strategy import decoded
from tarragon.localcluster.schema.field_errors import Fault, invalid_value

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"


def reviews(authorizer: Authorizer, accounts: Accounts) -> Mapping[FullName, Computed]:
    """Who answers, by kind."""
    return {
        (_AUTHORIZATION, "selfsubjectaccessreviews"): AccessReview(authorizer, is_of_self=True),
        (_AUTHORIZATION, "subjectaccessreviews"): AccessReview(authorizer),
        (_AUTHORIZATION, "localsubjectaccessreviews"): AccessReview(authorizer),
        (_AUTHORIZATION, "selfsubjectrulesreviews"): RulesReview(authorizer),
        (_AUTHENTICATION, "selfsubjectreviews"): SelfReview(),
        (_AUTHENTICATION, "tokenreviews"): TokenReview(accounts),
        ("", "serviceaccounts/token"): TokenRequests(accounts),
    }


@dataclass(frozen=True, slots=True)
class AccessReview(Computed):
    """Tells whether a user may do something: whoever asks, or anybody."""

    authorizer: Authorizer
    is_of_self: bool = False

    async def create(self, target: Target, body: Json, user: User) -> Json:
        spec = _spec(target, body)
        if faults := [*_attribute_faults(spec), *self._subject_faults(target, spec)]:
            raise errors.invalid(target.served, "", faults)
        who = user if self.is_of_self else _user(spec)
        answer = self.authorizer.authorize(who, _attributes(spec))
        told: Json = {"allowed": answer.is_allowed}
        if answer.reason:
            told["reason"] = answer.reason
        return _answer(target, body, told)

    def _subject_faults(self, target: Target, spec: Json) -> list[Fault]:
        found: list[Fault] = []
        if not self.is_of_self and not spec.get("user") and not spec.get("groups"):
            found.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
        if target.namespace and spec.get("resourceAttributes") is not None:
            asked = spec["resourceAttributes"].get("namespace", "")
            if asked != target.namespace:
                words = "must match metadata.namespace"
                found.append(invalid_value("spec.resourceAttributes.namespace", asked, words))
        elif target.namespace:
            words = "disallowed on this kind of request"
            found.append(invalid_value("spec.nonResourceAttributes", spec.get("nonResourceAttributes"), words))
        return found


@dataclass(frozen=True, slots=True)
class RulesReview(Computed):
    """Tells everything that whoever asks may do in a namespace."""

    authorizer: Authorizer

    async def create(self, target: Target, body: Json, user: User) -> Json:
        namespace = str(_spec(target, body).get("namespace") or "")
        if not namespace:
            raise errors.bad_request("no namespace on request")
        held = self.authorizer.held(user, namespace)
        told: Json = {
            "resourceRules": [rule.written() for rule in held.rules if rule.resources],
            "nonResourceRules": [rule.written() for rule in held.rules if rule.urls],
            "incomplete": False,
        }
        if held.faults:
            told["evaluationError"] = ", ".join(held.faults)
        return {**_answer(target, body, told), "spec": {}}


class SelfReview(Computed):
    """Tells who asks."""

    async def create(self, target: Target, body: Json, user: User) -> Json:
        return _answer(target, body, {"userInfo": _written(user)})


@dataclass(frozen=True, slots=True)
class TokenReview(Computed):
    """Tells whose a token is."""

    accounts: Accounts

    async def create(self, target: Target, body: Json, user: User) -> Json:  # noqa: ARG002 - it is about another
        spec = _spec(target, body)
        token = str(spec.get("token") or "")
        if not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        judged = self.accounts.judge(token, _texts(spec.get("audiences")) or (ISSUER,))
        if isinstance(judged, Known):
            told = {"authenticated": True, "user": _written(judged.user), "audiences": list(judged.audiences)}
        else:
            told = {"user": {}, "error": judged.why}
        return _answer(target, body, told)


def _spec(target: Target, body: Json) -> Json:
    """What is asked, in its kind's shape. Raises BadRequest."""
    decoded(target.served, body)
    return _object(body, "spec")


def _answer(target: Target, body: Json, status: Mapping[str, Any]) -> Json:
    """The question with the answer in it."""
    served = target.served
    metadata = {**_object(body, "metadata"), "creationTimestamp": None}
    return {
        "kind": served.kind,
        "apiVersion": served.api_version,
        "metadata": metadata,
        **({"spec": body["spec"]} if "spec" in body else {}),
        "status": dict(status),
    }


def _attribute_faults(spec: Json) -> list[Fault]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        words = "cannot be specified in combination with resourceAttributes"
        return [invalid_value("spec.nonResourceAttributes", other, words)]
    if resource is None and other is None:
        words = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid_value("spec.resourceAttributes", None, words)]
    return []


def _attributes(spec: Json) -> Attributes:
    """Of a review without faults."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        return Attributes(verb=str(other.get("verb", "")), path=str(other.get("path") or "/"))
    asked = _object(spec, "resourceAttributes")
    return Attributes(
        verb=str(asked.get("verb", "")),
        group=str(asked.get("group", "")),
        version=str(asked.get("version", "")),
        resource=str(asked.get("resource", "")),
        subresource=str(asked.get("subresource", "")),
        namespace=str(asked.get("namespace", "")),
        name=str(asked.get("name", "")),
    )


def _user(spec: Json) -> User:
    extra = spec.get("extra") or {}
    return User(
        name=str(spec.get("user") or ""),
        groups=_texts(spec.get("groups")),
        uid=str(spec.get("uid") or ""),
        extra={str(key).lower(): _texts(values) for key, values in extra.items()},
    )


def _written(user: User) -> Json:
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
