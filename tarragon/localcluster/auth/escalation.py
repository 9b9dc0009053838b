"""Nobody gives what they do not have: the checks on writes of roles and bindings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.identity import MASTERS, User
from tarragon.localcluster.auth import messages
from tarragon.localcluster.auth.attributes import Attributes
from tarragon.localcluster.auth.authorizers import Authorizer
from tarragon.localcluster.auth.roles import GROUP, Roles
from tarragon.localcluster.auth.rules import EVERYTHING, Rule, quoted, rules_of, uncovered
from tarragon.localcluster.kinds.resource import Served

Json = Mapping[str, Any]

_KINDS = frozenset({"roles", "clusterroles", "rolebindings", "clusterrolebindings"})
_OF_GARBAGE = frozenset({"ownerReferences", "finalizers", "resourceVersion", "managedFields", "generation"})
"""What the garbage collector changes of an object's metadata, whoever's rights the object gives."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """What a user may write of roles and bindings, beside what the verbs allow."""

    user: User
    roles: Roles
    authorizer: Authorizer

    def check(self, served: Served, new: Json, old: Json | None) -> None:
        """Of an object that is about to be stored, in place of `old`. Raises Forbidden, or NotFound for the role of
        a binding.
        """
        if served.group != GROUP or served.plural not in _KINDS or MASTERS in self.user.groups:
            return
        if old is not None and _is_garbage_collection(new, old):
            return
        metadata = new["metadata"]
        namespace = metadata.get("namespace", "") if served.namespaced else ""
        about = Attributes(
            verb="escalate", group=GROUP, resource=served.plural, namespace=namespace, name=metadata.get("name", "")
        )
        if served.plural.endswith("bindings"):
            self._check_binding(about, new)
        else:
            self._check_role(about, new, old or {})

    def _check_role(self, about: Attributes, new: Json, old: Json) -> None:
        if self.authorizer.authorize(self.user, about).is_allowed:
            return
        if lacks := self._lacks(about, rules_of(new)):
            raise messages.about(about, lacks)
        if (new.get("aggregationRule") or old.get("aggregationRule")) and self._lacks(about, EVERYTHING):
            raise messages.about(about, "must have cluster-admin privileges to use the aggregationRule")

    def _check_binding(self, about: Attributes, new: Json) -> None:
        role = new.get("roleRef") or {}
        kind, name = str(role.get("kind", "")), str(role.get("name", ""))
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        bind = Attributes(verb="bind", group=GROUP, resource=plural, namespace=about.namespace, name=name)
        if self.authorizer.authorize(self.user, bind).is_allowed:
            return
        rules = self.roles.rules(kind, name, about.namespace)
        if rules is None:
            raise _no_role(plural, name)
        if lacks := self._lacks(about, rules):
            raise messages.about(about, lacks)

    def _lacks(self, about: Attributes, wanted: Iterable[Rule]) -> str:
        """The words for what the user does not have of `wanted`; none when there is nothing."""
        held = self.authorizer.held(self.user, about.namespace)
        missing = sorted({str(rule) for rule in uncovered(held.rules, wanted)})
        if not missing:
            return ""
        who = f"user {json.dumps(self.user.name)} (groups={quoted(self.user.groups)})"
        told = f"{who} is attempting to grant RBAC permissions not currently held:\n" + "\n".join(missing)
        return f"{told}; resolution errors: [{' '.join(held.faults)}]" if held.faults else told


def _no_role(plural: str, name: str) -> ApiError:
    details = {"name": name, "group": GROUP, "kind": plural}
    return errors.failure(404, "NotFound", f'{plural}.{GROUP} "{name}" not found', details)


def _is_garbage_collection(new: Json, old: Json) -> bool:
    def rest(thing: Json) -> Json:
        metadata = {name: value for name, value in thing["metadata"].items() if name not in _OF_GARBAGE}
        return {**thing, "metadata": metadata}

    return rest(new) == rest(old)
