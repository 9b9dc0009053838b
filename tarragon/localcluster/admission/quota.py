"""ResourceQuotas: counted with every write, and nothing is stored that exceeds one.

The count in a quota's status is exact: it changes in the same commit as what it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarragon.base.quantity import milli
from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode
from tarragon.localcluster.admission.usage import COMPUTE, Usage, amounts, containers, one_line, plus, told, usage_of
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.registry import Registry, Served
from tarragon.localcluster.storage.history import Change, ObjectKey, Stored
from tarragon.localcluster.storage.objects import encoded
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.validation.pods import quality_of_service

Json = dict[str, Any]

QUOTAS = "resourcequotas"


class Quotas:
    """Follows every write of what a quota can count."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._known = Known(store, QUOTAS)
        found = registry.find("", "v1", QUOTAS)
        assert found is not None  # noqa: S101 - it is built in
        self._served = found

    def following(self, changes: Sequence[Change]) -> Sequence[Change]:
        own = [change for change in changes if change.kind == QUOTAS]
        if not own and not self._known:
            return ()
        following = list(self._following(changes, {change.key: change for change in own}))
        for change in own:
            self._known.see(change)
        return following

    def _following(self, changes: Sequence[Change], own: Mapping[tuple[str, str], Change]) -> Iterator[Change]:
        for change in own.values():
            if not change.is_gone and (status := self._counted(change.state, changes)) is not None:
                yield with_status(self._store, self._served, change.state, status)
        for namespace in {change.key[0] for change in changes} - {""}:
            for stored in self._known.of(namespace):
                if stored.key not in own and (status := self._moved(stored, namespace, changes)) is not None:
                    yield with_status(self._store, self._served, stored, status)

    def _counted(self, stored: Stored, changes: Sequence[Change]) -> Json | None:
        """The status of a quota that is new or was changed: all is counted. None where it is right."""
        quota = decode(stored.body, dict)
        hard = (quota.get("spec") or {}).get("hard") or {}
        used: Usage = dict.fromkeys(hard, 0)
        for kind in sorted(self._kinds(hard)):
            for one in newest(self._store, kind, stored.key[0], changes).values():
                used = plus(used, _counted_by(quota, kind, decode(one.body, dict)))
        status = {"hard": hard, "used": told(used)}
        return status if quota.get("status") != status else None

    def _moved(self, stored: Stored, namespace: str, changes: Sequence[Change]) -> Json | None:
        """The status once the changes have happened. Raises Forbidden."""
        quota = decode(stored.body, dict)
        more: Usage = {}
        for change in changes:
            if change.key[0] == namespace:
                self._refuse_what_is_not_said(quota, change)
                more = plus(more, _difference(quota, change))
        if not any(more.values()):
            return None
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        self._refuse_excess(quota, changes, more)
        after = {name: milli(used.get(name, "0")) + more.get(name, 0) for name in hard}
        return {"hard": hard, "used": told(after)}

    def _refuse_excess(self, quota: Json, changes: Sequence[Change], more: Usage) -> None:
        status = quota["status"]
        hard, used = status["hard"], status["used"]
        exceeded = [
            name
            for name in hard
            if more.get(name, 0) > 0 and milli(used.get(name, "0")) + more[name] > milli(hard[name])
        ]
        if exceeded:
            words = (
                f"exceeded quota: {quota['metadata']['name']}, "
                f"requested: {one_line({name: text for name, text in told(more).items() if name in exceeded})}, "
                f"used: {one_line({name: used.get(name, '0') for name in exceeded})}, "
                f"limited: {one_line({name: hard[name] for name in exceeded})}"
            )
            guilty = next(
                change for change in changes if any(_difference(quota, change).get(name) for name in exceeded)
            )
            raise self._forbidden(guilty, words)

    def _refuse_what_is_not_said(self, quota: Json, change: Change) -> None:
        """A quota of cpu or memory can't count a pod that does not say what it wants."""
        if change.kind != "pods" or change.before is not None or change.is_gone:
            return
        wanted = [name for name in COMPUTE if name in ((quota.get("spec") or {}).get("hard") or {})]
        pod = decode(change.state.body, dict) if wanted else {}
        if not wanted or not is_in_scope(quota, pod):
            return
        missing = {name: _silent(pod, name) for name in sorted(wanted)}
        told_ = [f"{name} for: {','.join(silent)}" for name, silent in missing.items() if silent]
        if told_:
            raise self._forbidden(change, f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(told_)}")

    def _forbidden(self, change: Change, words: str) -> ApiError:
        served = next(kind for kind in self._registry if kind.full_name == change.kind)
        return errors.forbidden(served, change.key[1], words)

    def _kinds(self, hard: Mapping[str, str]) -> set[str]:
        """The kinds whose objects such a quota counts."""
        kinds = {name.removeprefix("count/") for name in hard if name.startswith("count/")}
        named = {kind.full_name for kind in self._registry if kind.full_name in hard}
        fixed = {"pods", "services", "persistentvolumeclaims"}
        return kinds | named | fixed


def _difference(quota: Json, change: Change) -> Usage:
    after = {} if change.is_gone else _counted_by(quota, change.kind, decode(change.state.body, dict))
    before = _counted_by(quota, change.kind, decode(change.before.body, dict)) if change.before is not None else {}
    return plus(after, before, -1)


def _counted_by(quota: Json, kind: str, thing: Mapping[str, Any]) -> Usage:
    """Of what an object uses, what this quota counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    if not is_in_scope(quota, thing if kind == "pods" else None):
        return {}
    return {name: amount for name, amount in usage_of(kind, thing).items() if name in hard}


def _silent(pod: Mapping[str, Any], name: str) -> list[str]:
    """The containers that do not say how much they want."""
    which, _, resource = name.rpartition(".")
    return sorted(str(one["name"]) for one in containers(pod) if resource not in amounts(one, which or "requests"))


def is_in_scope(quota: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
    """Whether a quota counts a pod; None is an object that is no pod: a quota with scopes counts none of these."""
    scopes = list(_scopes(quota.get("spec") or {}))
    return not scopes or (pod is not None and all(_holds(scope, pod) for scope in scopes))


def _scopes(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ())
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _holds(scope: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    spec = pod.get("spec") or {}
    match scope.get("scopeName"):
        case "BestEffort":
            return quality_of_service(spec) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(spec) != "BestEffort"
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "PriorityClass":
            return _is_among(scope, str(spec.get("priorityClassName") or ""))
        case _:
            return True


def _is_among(scope: Mapping[str, Any], name: str) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


def with_status(store: Store, served: Served, stored: Stored, status: Mapping[str, Any]) -> Change:
    """The object with another status."""
    thing: Json = {**decode(stored.body, dict), "status": status}
    revision = store.next_revision()
    state = store.stored(served.full_name, stored.key, revision, thing, encoded(served, thing, revision))
    return Change(served.full_name, stored.key, stored, state, is_gone=False)


class Known:
    """The names of a kind's objects by namespace, also of those that are queued: it is told of every one made."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._names: dict[str, set[str]] = {}
        for namespace, name in store.shelf(kind).objects:
            self._names.setdefault(namespace, set()).add(name)

    def __bool__(self) -> bool:
        return bool(self._names)

    def see(self, change: Change) -> None:
        """Of a change that may yet come to nothing: a name is only forgotten when its object is seen to be gone."""
        namespace, name = change.key
        if not change.is_gone:
            self._names.setdefault(namespace, set()).add(name)

    def of(self, namespace: str) -> list[Stored]:
        """As they will be."""
        return [stored for name in sorted(self._names.get(namespace, ())) if (stored := self._latest(namespace, name))]

    def _latest(self, namespace: str, name: str) -> Stored | None:
        stored = self._store.latest(self._kind, (namespace, name))
        if stored is None and (namespace, name) not in self._store.shelf(self._kind).objects:
            self._forget(namespace, name)
        return stored

    def _forget(self, namespace: str, name: str) -> None:
        names = self._names[namespace]
        names.discard(name)
        if not names:
            del self._names[namespace]


def newest(store: Store, kind: str, namespace: str, changes: Sequence[Change]) -> dict[ObjectKey, Stored]:
    """All objects of a kind in a namespace once the changes have happened."""
    found = {one.key: one for one in store.latest_of(kind) if one.key[0] == namespace}
    for change in changes:
        if change.kind == kind and change.key[0] == namespace:
            if change.is_gone:
                found.pop(change.key, None)
            else:
                found[change.key] = change.state
    return found
