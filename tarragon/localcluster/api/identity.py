"""Who asks: what authentication finds out, and what authorization, reviews and audit go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTERS = "system:masters"
"""Members of this group may do everything, whatever roles say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """As Kubernetes knows one: `extra` holds keys like `authentication.kubernetes.io/pod-name`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


OWNER = User(name="kubernetes-admin", groups=(MASTERS, "system:authenticated"))
"""Whoever holds the home's own token: the user of this machine whose home it is."""
