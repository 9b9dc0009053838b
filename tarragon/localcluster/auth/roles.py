"""Roles and their bindings as they are stored: which rules a user has, and by what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tarragon.kube.codec import decode
from tarragon.localcluster.api.identity import User
from tarragon.localcluster.auth.rules import Rule, rules_of
from tarragon.localcluster.storage.history import ObjectKey, Shelf, Stored

GROUP = "rbac.authorization.k8s.io"
ACCOUNT_PREFIX = "system:serviceaccount:"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    kind: str
    name: str
    namespace: str = ""

    def is_user(self, user: User) -> bool:
        match self.kind:
            case "User":
                return user.name == self.name
            case "Group":
                return self.name in user.groups
            case "ServiceAccount":
                return bool(self.namespace) and user.name == f"{ACCOUNT_PREFIX}{self.namespace}:{self.name}"
            case _:
                return False

    def __str__(self) -> str:
        name = f"{self.name}/{self.namespace}" if self.kind == "ServiceAccount" else self.name
        return f"{self.kind} {json.dumps(name, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Without a namespace it is a ClusterRoleBinding."""

    name: str
    namespace: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...]

    def told_of(self, subject: Subject) -> str:
        """What allowed something, as reviews tell it."""
        kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else _whole(self.name)
        role = f"{self.role_kind} {json.dumps(self.role_name)}"
        return f"{kind} {json.dumps(name)} of {role} to {subject}"


def _whole(name: str) -> tuple[str, str]:
    return "ClusterRoleBinding", name


@dataclass(frozen=True, slots=True)
class Grant:
    """The rules that one binding gives a user; none, with the `fault`, where its role is not there."""

    binding: Binding
    subject: Subject
    rules: tuple[Rule, ...]
    fault: str = ""


class Roles:
    """Reads what is stored; what has been decoded once is kept until it changes."""

    def __init__(self, shelf: Callable[[str], Shelf]) -> None:
        self._roles = _Decoded(shelf(f"roles.{GROUP}"), rules_of)
        self._cluster_roles = _Decoded(shelf(f"clusterroles.{GROUP}"), rules_of)
        self._bindings = _Decoded(shelf(f"rolebindings.{GROUP}"), _binding)
        self._cluster_bindings = _Decoded(shelf(f"clusterrolebindings.{GROUP}"), _binding)

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """All that count in a namespace; in none, those of the whole cluster."""
        yield from self._of(self._cluster_bindings.all(""), user)
        if namespace:
            yield from self._of(self._bindings.all(namespace), user)

    def rules(self, kind: str, name: str, namespace: str) -> tuple[Rule, ...] | None:
        """Of a role; None when it is not there."""
        if kind == "ClusterRole":
            return self._cluster_roles.get(("", name))
        return self._roles.get((namespace, name)) if kind == "Role" else None

    def _of(self, bindings: Iterable[Binding], user: User) -> Iterator[Grant]:
        for binding in bindings:
            subject = next((one for one in binding.subjects if one.is_user(user)), None)
            if subject is None:
                continue
            rules = self.rules(binding.role_kind, binding.role_name, binding.namespace)
            if rules is None:
                fault = f'{binding.role_kind.lower()}.{GROUP} "{binding.role_name}" not found'
                yield Grant(binding, subject, (), fault)
            else:
                yield Grant(binding, subject, rules)


class _Decoded(Generic[T]):
    """The objects of a kind, decoded when first needed."""

    def __init__(self, shelf: Shelf, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._shelf = shelf
        self._read = read
        self._known: dict[ObjectKey, tuple[Stored, T]] = {}

    def all(self, namespace: str) -> Iterator[T]:
        for stored in self._shelf.between(namespace, None):
            yield self._value(stored)

    def get(self, key: ObjectKey) -> T | None:
        stored = self._shelf.objects.get(key)
        return None if stored is None else self._value(stored)

    def _value(self, stored: Stored) -> T:
        known = self._known.get(stored.key)
        if known is not None and known[0] is stored:
            return known[1]
        if len(self._known) > 2 * len(self._shelf.objects):
            self._known.clear()  # most of it has been deleted since
        value = self._read(decode(stored.body, dict))
        self._known[stored.key] = (stored, value)
        return value


def _binding(written: Mapping[str, Any]) -> Binding:
    metadata, role = written["metadata"], written.get("roleRef") or {}
    namespace = metadata.get("namespace", "")
    return Binding(
        name=metadata["name"],
        namespace=namespace,
        role_kind=role.get("kind", ""),
        role_name=role.get("name", ""),
        subjects=tuple(
            Subject(one.get("kind", ""), one.get("name", ""), one.get("namespace") or namespace)
            for one in written.get("subjects") or ()
        ),
    )
