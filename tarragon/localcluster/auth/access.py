"""`Access`: all that decides who may do what in one cluster, made once when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tarragon.base.clock import Clock
from tarragon.localcluster.auth.accounts import Accounts
from tarragon.localcluster.auth.authorizers import AlwaysAllow, Authorization, Authorizer, ByRoles
from tarragon.localcluster.auth.keys import SigningKey
from tarragon.localcluster.auth.roles import Roles
from tarragon.localcluster.registry.api import Api


@dataclass(frozen=True, slots=True)
class Access:
    authorizer: Authorizer
    roles: Roles
    accounts: Accounts


def access_to(api: Api, authorization: Authorization, account_key: Path, clock: Clock) -> Access:
    """`account_key` is the file of the key that signs tokens; made when there is none and one is needed."""
    roles = Roles(api.shelf)
    authorizer = ByRoles(roles) if authorization is Authorization.RBAC else AlwaysAllow()
    return Access(authorizer, roles, Accounts(api.shelf, SigningKey(account_key), clock))
