"""ResourceQuotas: refuses writes that would exceed one, and keeps the usage in their status.

The usage is exact: it changes in the same commit as the objects that it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarragon.base.quantity import parse_milli
from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode
from tarragon.localcluster.admission.usage import (
    COMPUTE,
    Usage,
    amounts,
    containers,
    has_pod_level_resources,
    one_line,
    plus,
    quantities,
    usage_of,
)
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.registry import KindRegistry, ServedKind
from tarragon.localcluster.storage.encoding import encode_stored
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.storage.watch_cache import Change, ObjectKey, StoredObject
from tarragon.localcluster.validation.pods import qos_class

Json = dict[str, Any]

QUOTAS = "resourcequotas"


class Quotas:
    """Computes, for the changes of a write, which quotas they change, and refuses those that exceed one."""

    def __init__(self, store: Store, registry: KindRegistry) -> None:
        self._store = store
        self._registry = registry
        self._quotas = _NamesByNamespace(store, QUOTAS)
        found = registry.find("", "v1", QUOTAS)
        assert found is not None  # noqa: S101 - it is built in
        self._served = found

    def following(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes of quotas' statuses to commit together with `changes`. Raises Forbidden."""
        own = [change for change in changes if change.kind == QUOTAS]
        if not own and not self._quotas:
            return ()
        following = list(self._following(changes, {change.key: change for change in own}))
        for change in own:
            self._quotas.add(change)
        return following

    def _following(self, changes: Sequence[Change], own: Mapping[tuple[str, str], Change]) -> Iterator[Change]:
        for change in own.values():
            if not change.is_deletion and (status := self._recounted(change.state, changes)) is not None:
                yield _with_status(self._store, self._served, change.state, status)
        for namespace in {change.key[0] for change in changes} - {""}:
            for stored in self._quotas.of(namespace):
                if stored.key not in own and (status := self._adjusted(stored, namespace, changes)) is not None:
                    yield _with_status(self._store, self._served, stored, status)

    def _recounted(self, stored: StoredObject, changes: Sequence[Change]) -> Json | None:
        """The status of a created or updated quota, counted from all objects; None if it is unchanged."""
        quota = decode(stored.body, dict)
        hard = (quota.get("spec") or {}).get("hard") or {}
        used: Usage = dict.fromkeys(hard, 0)
        for kind in sorted(self._kinds(hard)):
            for one in _latest_objects(self._store, kind, stored.key[0], changes).values():
                used = plus(used, _usage_counted_by(quota, kind, decode(one.body, dict)))
        status = {"hard": hard, "used": quantities(used)}
        return status if quota.get("status") != status else None

    def _adjusted(self, stored: StoredObject, namespace: str, changes: Sequence[Change]) -> Json | None:
        """The status after the changes, from the usage before them; None if it is unchanged. Raises Forbidden."""
        quota = decode(stored.body, dict)
        more: Usage = {}
        for change in changes:
            if change.key[0] == namespace:
                self._refuse_unset(quota, change)
                more = plus(more, _usage_delta(quota, change))
        if not any(more.values()):
            return None
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        self._refuse_excess(quota, changes, more)
        after = {name: parse_milli(used.get(name, "0")) + more.get(name, 0) for name in hard}
        return {"hard": hard, "used": quantities(after)}

    def _refuse_excess(self, quota: Json, changes: Sequence[Change], more: Usage) -> None:
        status = quota["status"]
        hard, used = status["hard"], status["used"]
        exceeded = [
            name
            for name in hard
            if more.get(name, 0) > 0 and parse_milli(used.get(name, "0")) + more[name] > parse_milli(hard[name])
        ]
        if exceeded:
            words = (
                f"exceeded quota: {quota['metadata']['name']}, "
                f"requested: {one_line({name: text for name, text in quantities(more).items() if name in exceeded})}, "
                f"used: {one_line({name: used.get(name, '0') for name in exceeded})}, "
                f"limited: {one_line({name: hard[name] for name in exceeded})}"
            )
            offending = next(
                change for change in changes if any(_usage_delta(quota, change).get(name) for name in exceeded)
            )
            raise self._forbidden(offending, words)

    def _refuse_unset(self, quota: Json, change: Change) -> None:
        """Refuse a new pod with a container that does not set a compute resource which the quota counts."""
        if change.kind != "pods" or change.before is not None or change.is_deletion:
            return
        wanted = [name for name in COMPUTE if name in ((quota.get("spec") or {}).get("hard") or {})]
        pod = decode(change.state.body, dict) if wanted else {}
        if not wanted or has_pod_level_resources(pod) or not _is_in_scope(quota, pod):
            return
        missing = {name: _containers_without(pod, name) for name in sorted(wanted)}
        unset = [f"{name} for: {','.join(lacking)}" for name, lacking in missing.items() if lacking]
        if unset:
            raise self._forbidden(change, f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(unset)}")

    def _forbidden(self, change: Change, words: str) -> ApiError:
        served = next(kind for kind in self._registry if kind.full_name == change.kind)
        return errors.forbidden(served, change.key[1], words)

    def _kinds(self, hard: Mapping[str, str]) -> set[str]:
        """The kinds whose objects a quota with these limits may count."""
        kinds = {name.removeprefix("count/") for name in hard if name.startswith("count/")}
        named = {kind.full_name for kind in self._registry if kind.full_name in hard}
        fixed = {"pods", "services", "persistentvolumeclaims"}
        return kinds | named | fixed


def _usage_delta(quota: Json, change: Change) -> Usage:
    after = {} if change.is_deletion else _usage_counted_by(quota, change.kind, decode(change.state.body, dict))
    before = (
        _usage_counted_by(quota, change.kind, decode(change.before.body, dict)) if change.before is not None else {}
    )
    return plus(after, before, -1)


def _usage_counted_by(quota: Json, kind: str, thing: Mapping[str, Any]) -> Usage:
    """The part of the object's usage that this quota counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    if not _is_in_scope(quota, thing if kind == "pods" else None):
        return {}
    return {name: amount for name, amount in usage_of(kind, thing).items() if name in hard}


def _containers_without(pod: Mapping[str, Any], name: str) -> list[str]:
    """The containers that do not set this request or limit."""
    which, _, resource = name.rpartition(".")
    return sorted(str(one["name"]) for one in containers(pod) if resource not in amounts(one, which or "requests"))


def _is_in_scope(quota: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
    """Whether the quota counts the pod; None is any other object, which a quota with scopes does not count."""
    scopes = list(_scopes(quota.get("spec") or {}))
    return not scopes or (pod is not None and all(_matches(scope, pod) for scope in scopes))


def _scopes(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ())
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _matches(scope: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    spec = pod.get("spec") or {}
    match scope.get("scopeName"):
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "PriorityClass":
            return _has_priority_class(scope, str(spec.get("priorityClassName") or ""))
        case _:
            return True


def _has_priority_class(scope: Mapping[str, Any], name: str) -> bool:
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


def _with_status(store: Store, served: ServedKind, stored: StoredObject, status: Mapping[str, Any]) -> Change:
    """The change that replaces the status of a quota."""
    thing: Json = {**decode(stored.body, dict), "status": status}
    revision = store.next_revision()
    state = store.new_revision(served.full_name, stored.key, revision, thing, encode_stored(served, thing, revision))
    return Change(served.full_name, stored.key, stored, state, is_deletion=False)


class _NamesByNamespace:
    """The names of a kind's objects by namespace, including those whose commit is queued."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._names: dict[str, set[str]] = {}
        for namespace, name in store.watch_cache(kind).objects:
            self._names.setdefault(namespace, set()).add(name)

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, change: Change) -> None:
        """Note a created object. As its commit may fail, a name is only removed when a read finds no object."""
        namespace, name = change.key
        if not change.is_deletion:
            self._names.setdefault(namespace, set()).add(name)

    def of(self, namespace: str) -> list[StoredObject]:
        """The latest versions, committed or queued."""
        return [stored for name in sorted(self._names.get(namespace, ())) if (stored := self._latest(namespace, name))]

    def _latest(self, namespace: str, name: str) -> StoredObject | None:
        stored = self._store.pending_state(self._kind, (namespace, name))
        if stored is None and (namespace, name) not in self._store.watch_cache(self._kind).objects:
            self._forget(namespace, name)
        return stored

    def _forget(self, namespace: str, name: str) -> None:
        names = self._names[namespace]
        names.discard(name)
        if not names:
            del self._names[namespace]


def _latest_objects(
    store: Store, kind: str, namespace: str, changes: Sequence[Change]
) -> dict[ObjectKey, StoredObject]:
    """All objects of a kind in a namespace as they will be after the changes."""
    found = {one.key: one for one in store.pending_states(kind) if one.key[0] == namespace}
    for change in changes:
        if change.kind == kind and change.key[0] == namespace:
            if change.is_deletion:
                found.pop(change.key, None)
            else:
                found[change.key] = change.state
    return found
