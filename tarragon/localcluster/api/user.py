"""Users: the result of authentication, as reviews and service account tokens name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user in Kubernetes' terms. `extra` holds keys like `authentication.kubernetes.io/pod-name`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


HOME_OWNER = User(name="kubernetes-admin", groups=("system:masters", AUTHENTICATED))
"""The user who holds the home's own token: the owner of the home on this machine."""
