"""Users: the result of authentication, and the subject of authorization, reviews and audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTERS = "system:masters"
"""Members of this group may do everything, whatever roles say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user in Kubernetes' terms. `extra` holds keys like `authentication.kubernetes.io/pod-name`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


OWNER = User(name="kubernetes-admin", groups=(MASTERS, "system:authenticated"))
"""The bearer of the home's own token: the user of this machine who owns the home."""
