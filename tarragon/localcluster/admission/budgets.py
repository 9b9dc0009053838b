"""PodDisruptionBudgets: how many pods may go, kept in their status with every write that matters to it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.base.clock import Clock
from tarragon.kube.codec import decode, timestamp
from tarragon.kube.selectors import from_match_labels
from tarragon.localcluster.admission.following import Known, newest, with_status
from tarragon.localcluster.kinds.registry import Registry
from tarragon.localcluster.storage.history import Change, ObjectKey, Stored
from tarragon.localcluster.storage.store import Store

Json = dict[str, Any]
Selects = Callable[[Mapping[str, str]], bool]

BUDGETS = "poddisruptionbudgets.policy"
PODS = "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a budget's pods stand."""

    expected: int
    healthy: int
    needed: int

    @property
    def may_go(self) -> int:
        return max(0, self.healthy - self.needed) if self.expected else 0


@dataclass(frozen=True, slots=True)
class _Owner:
    """The controller of a pod."""

    uid: str
    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class _Pod:
    """What a budget needs to know of a pod's revision."""

    revision: int
    is_healthy: bool
    owner: _Owner | None


class Budgets:
    """Follows every write of a pod, of a budget, and of what says how many pods there should be."""

    def __init__(self, store: Store, registry: Registry, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known = Known(store, BUDGETS)
        self._pods: dict[ObjectKey, _Pod] = {}
        found = registry.find("policy", "v1", "poddisruptionbudgets")
        assert found is not None  # noqa: S101 - it is built in
        self._served = found

    def following(self, changes: Sequence[Change]) -> Sequence[Change]:
        own = [change for change in changes if change.kind == BUDGETS]
        if not own and not self._known:
            return ()
        following = list(self._following(changes, own))
        for change in own:
            self._known.see(change)
        return following

    def selecting(self, pod: Stored) -> Iterator[tuple[Json, Standing]]:
        """The budgets that hold a pod, with how they stand now."""
        for stored in self._known.of(pod.key[0]):
            budget = decode(stored.body, dict)
            if _selects(budget)(pod.labels):
                yield budget, self._standing(budget, pod.key[0], ())

    def _following(self, changes: Sequence[Change], own: Sequence[Change]) -> Iterator[Change]:
        written = {change.key: change.state for change in own if not change.is_gone}
        gone = {change.key for change in own if change.is_gone}
        for namespace in {change.key[0] for change in changes} - {""}:
            known = {stored.key: stored for stored in self._known.of(namespace) if stored.key not in gone}
            new = {key: stored for key, stored in written.items() if key[0] == namespace}
            for key, stored in {**known, **new}.items():
                budget = decode(stored.body, dict)
                if key in written or _matters(changes, namespace, _selects(budget)):
                    status = self._status(budget, self._standing(budget, namespace, changes))
                    if status != budget.get("status"):
                        yield with_status(self._store, self._served, stored, status)

    def _standing(self, budget: Json, namespace: str, changes: Sequence[Change]) -> Standing:
        selects = _selects(budget)
        found = newest(self._store, PODS, namespace, changes).values()
        pods = [self._pod(one) for one in found if selects(one.labels)]
        spec = budget.get("spec") or {}
        is_counted = isinstance(spec.get("minAvailable"), int)
        expected = len(pods) if is_counted else self._expected(pods, namespace, changes)
        healthy = sum(pod.is_healthy for pod in pods)
        return Standing(expected=expected, healthy=healthy, needed=_needed(spec, expected))

    def _pod(self, stored: Stored) -> _Pod:
        """What has been read once is kept until the pod changes: one write must not decode all the others."""
        known = self._pods.get(stored.key)
        if known is not None and known.revision == stored.revision:
            return known
        if len(self._pods) > 2 * len(self._store.shelf(PODS).objects):
            self._pods.clear()  # most of them have been deleted since
        pod = decode(stored.body, dict)
        read = self._pods[stored.key] = _Pod(stored.revision, is_healthy(pod), _controller(pod))
        return read

    def _expected(self, pods: Iterable[_Pod], namespace: str, changes: Sequence[Change]) -> int:
        """As many as their controllers want; those whose controller has no such number count as they are."""
        owners = Counter(pod.owner for pod in pods)
        total = owners.pop(None, 0)
        wanted: dict[str, int] = {}
        for owner, there in owners.items():
            number = self._replicas(owner, namespace, changes) if owner else None
            if owner is None or number is None:
                total += there
            else:
                wanted[owner.uid] = number
        return total + sum(wanted.values())

    def _replicas(self, owner: _Owner, namespace: str, changes: Sequence[Change]) -> int | None:
        kind = _SCALED.get((owner.api_version, owner.kind))
        if kind is None:
            return None
        stored = newest(self._store, kind, namespace, changes).get((namespace, owner.name))
        if stored is None:
            return None
        controller = decode(stored.body, dict)
        replicas = (controller.get("spec") or {}).get("replicas")
        return replicas if controller["metadata"]["uid"] == owner.uid and isinstance(replicas, int) else None

    def _status(self, budget: Json, standing: Standing) -> Json:
        before = budget.get("status") or {}
        generation = budget["metadata"].get("generation", 0)
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if standing.may_go else "False",
            "reason": "SufficientPods" if standing.may_go else "InsufficientPods",
            "message": "",
            "observedGeneration": generation,
            "lastTransitionTime": timestamp(self._clock.now()),
        }
        for old in before.get("conditions") or ():
            if old.get("type") == condition["type"] and old.get("status") == condition["status"]:
                condition["lastTransitionTime"] = old.get("lastTransitionTime")
        return {
            **{name: value for name, value in before.items() if name == "disruptedPods"},
            "observedGeneration": generation,
            "disruptionsAllowed": standing.may_go,
            "currentHealthy": standing.healthy,
            "desiredHealthy": standing.needed,
            "expectedPods": standing.expected,
            "conditions": [condition],
        }


_SCALED = {
    ("apps/v1", "ReplicaSet"): "replicasets.apps",
    ("v1", "ReplicationController"): "replicationcontrollers",
}


def is_healthy(pod: Mapping[str, Any]) -> bool:
    """Ready, and not on its way out."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _matters(changes: Sequence[Change], namespace: str, selects: Selects) -> bool:
    """Whether any of them is of a pod that the budget selects or did, or of a controller of pods."""
    controllers = set(_SCALED.values())
    for change in changes:
        if change.key[0] != namespace:
            continue
        if change.kind in controllers:
            return True
        labels = [change.state.labels, *([change.before.labels] if change.before is not None else [])]
        if change.kind == PODS and any(map(selects, labels)):
            return True
    return False


def _selects(budget: Json) -> Selects:
    return from_match_labels((budget.get("spec") or {}).get("selector") or {})


def _controller(pod: Json) -> _Owner | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    found = next((one for one in owners if one.get("controller")), None)
    if found is None:
        return None
    return _Owner(found["uid"], str(found.get("apiVersion")), str(found.get("kind")), str(found.get("name")))


def _needed(spec: Mapping[str, Any], expected: int) -> int:
    """How many pods must be healthy."""
    if spec.get("minAvailable") is not None:
        return _share(spec["minAvailable"], expected)
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _share(spec["maxUnavailable"], expected))
    return 0


def _share(amount: int | str, whole: int) -> int:
    """A number, or a percentage of the whole rounded up."""
    if isinstance(amount, int):
        return amount
    digits = amount.removesuffix("%")
    return math.ceil(int(digits) * whole / 100) if digits.isdigit() else 0
