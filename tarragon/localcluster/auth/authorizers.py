"""Who may do what: always everything, or what roles say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tarragon.localcluster.api.identity import MASTERS, User
from tarragon.localcluster.auth.attributes import Attributes
from tarragon.localcluster.auth.roles import Roles
from tarragon.localcluster.auth.rules import EVERYTHING, Rule


class Authorization(Enum):
    """How an embedded cluster decides what a user may do."""

    ALWAYS_ALLOW = "always-allow"
    RBAC = "rbac"


@dataclass(frozen=True, slots=True)
class Answer:
    """`reason` says by what, or what stood in the way; often there is nothing to say."""

    is_allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The rules that a user has in a namespace, and what could not be found out."""

    rules: tuple[Rule, ...]
    faults: tuple[str, ...] = ()


class Authorizer(Protocol):
    def authorize(self, user: User, wanted: Attributes) -> Answer: ...

    def held(self, user: User, namespace: str) -> Held: ...


class AlwaysAllow:
    """Whoever is known may do everything."""

    def authorize(self, user: User, wanted: Attributes) -> Answer:  # noqa: ARG002 - whoever it is, whatever it is
        return Answer(is_allowed=True)

    def held(self, user: User, namespace: str) -> Held:  # noqa: ARG002 - as above
        return Held(EVERYTHING)


class ByRoles:
    """Members of system:masters may do everything, all others what a role of theirs allows."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def authorize(self, user: User, wanted: Attributes) -> Answer:
        if MASTERS in user.groups:
            return Answer(is_allowed=True)
        faults: list[str] = []
        for grant in self._roles.grants(user, wanted.namespace):
            if grant.fault:
                faults.append(grant.fault)
            elif any(rule.allows(wanted) for rule in grant.rules):
                told = grant.binding.told_of(grant.subject)
                return Answer(is_allowed=True, reason=f"RBAC: allowed by {told}")
        return Answer(is_allowed=False, reason=f"RBAC: {together(faults)}" if faults else "")

    def held(self, user: User, namespace: str) -> Held:
        """Those of system:masters come from the binding that every cluster has, like everybody's."""
        grants = list(self._roles.grants(user, namespace))
        rules = tuple(rule for grant in grants for rule in grant.rules)
        return Held(rules, tuple(grant.fault for grant in grants if grant.fault))


def together(faults: Iterable[str]) -> str:
    """Several messages in one, each once."""
    told = list(dict.fromkeys(faults))
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"
