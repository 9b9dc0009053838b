"""The subresources of pods that are only posted to: `binding` and `eviction`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.cluster.port import DeleteOptions
from tarragon.kube.codec import decode, encode, timestamp
from tarragon.kube.selectors import from_match_labels
from tarragon.localcluster import refusals
from tarragon.localcluster.deleting import Deletes
from tarragon.localcluster.faults import required
from tarragon.localcluster.history import Stored
from tarragon.localcluster.requests import Json, Target, WriteOptions, Written
from tarragon.localcluster.writes import Decision, Writes, opened

BUDGETS = "poddisruptionbudgets.policy"
PODS = "pods"


class PodActions:
    """Binding a pod to a node, and evicting one if its disruption budgets allow."""

    def __init__(self, writes: Writes, deletes: Deletes) -> None:
        self._writes = writes
        self._deletes = deletes

    async def bind(self, target: Target, body: Json, options: WriteOptions) -> Written:
        def decide() -> Decision[Written]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            bound = _bound(target, opened(stored, target.served), body, timestamp(self._writes.now()))
            change = self._writes.change(target.served, bound, stored, options)
            return Decision([change], _done())

        return await self._writes.run(decide, options)

    async def evict(self, target: Target, body: Json, options: WriteOptions) -> Written:
        def decide() -> Decision[Written]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            pod = opened(stored, target.served)
            if not _needs_no_permission(pod):
                self._refuse_beyond_budget(target, stored)
            ended = self._deletes.decided(target.served, stored, _delete_options(body), options)
            return Decision(ended.changes, _done())

        return await self._writes.run(decide, options)

    def _refuse_beyond_budget(self, target: Target, stored: Stored) -> None:
        """No controller keeps count of budgets here: the pods are counted when one is to go."""
        for name, spec in self._budgets(target.namespace):
            selects = from_match_labels(spec.get("selector") or {})
            if not selects(stored.labels):
                continue
            pods = [one for one in self._pods(target.namespace) if selects(one[0].labels)]
            healthy = sum(_is_ready(pod) for _, pod in pods)
            needed = _needed(spec, len(pods))
            if healthy - 1 < needed:
                raise refusals.over_budget(name, needed, healthy)

    def _budgets(self, namespace: str) -> Iterator[tuple[str, Json]]:
        for stored in self._writes.store.latest_of(BUDGETS):
            if stored.key[0] == namespace:
                yield stored.key[1], decode(stored.body, dict).get("spec") or {}

    def _pods(self, namespace: str) -> Iterator[tuple[Stored, Json]]:
        for stored in self._writes.store.latest_of(PODS):
            if stored.key[0] == namespace:
                yield stored, decode(stored.body, dict)


def _done() -> Written:
    return Written(encode(refusals.created_status()), created=True)


def _bound(target: Target, pod: Json, body: Json, now: str) -> Json:
    wanted = body.get("target")
    node = wanted.get("name") if isinstance(wanted, Mapping) else None
    if not isinstance(node, str) or not node:
        raise refusals.invalid(target.served, target.name, [required("target.name")])
    spec, metadata = pod["spec"], pod["metadata"]
    if metadata.get("deletionTimestamp"):
        raise refusals.binding_conflict(
            target.name, f"pod {target.name} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        words = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
        raise refusals.binding_conflict(target.name, words)
    said = body.get("metadata")
    notes = said.get("annotations") if isinstance(said, Mapping) else None
    if isinstance(notes, Mapping) and notes:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}
    spec["nodeName"] = node
    status = pod.setdefault("status", {})
    others = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    status["conditions"] = [*others, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
    return pod


def _delete_options(body: Mapping[str, Any]) -> DeleteOptions:
    given = body.get("deleteOptions")
    given = given if isinstance(given, Mapping) else {}
    meant = given.get("preconditions")
    meant = meant if isinstance(meant, Mapping) else {}
    grace = given.get("gracePeriodSeconds")
    return DeleteOptions(
        uid=str(meant.get("uid") or ""),
        resource_version=str(meant.get("resourceVersion") or ""),
        grace_seconds=grace if isinstance(grace, int) and not isinstance(grace, bool) else None,
    )


def _needs_no_permission(pod: Mapping[str, Any]) -> bool:
    """It has ended, has not begun, or is on its way out."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(pod["metadata"].get("deletionTimestamp"))


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


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
