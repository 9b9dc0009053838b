"""The ReplicaSet controller, and its pure decisions: which pods to create and delete, and the status."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads.conditions import with_condition, without
from tarragon.localcluster.controllers.workloads.context import REQUEUE_SECONDS, ReconciledCache, WorkloadContext
from tarragon.localcluster.controllers.workloads.model import REPLICA_SETS, Json, ReplicaSet
from tarragon.localcluster.controllers.workloads.pod_control import BURST_REPLICAS, PodControl, omitting_zeros, pod_from
from tarragon.localcluster.controllers.workloads.pods import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class Step:
    """Pods to create or to delete, never both."""

    make: int = 0
    delete: Sequence[Pod] = ()


def step(wanted: int, active: Sequence[Pod], now: dt.datetime) -> Step:
    missing = wanted - len(active)
    if missing >= 0:
        return Step(make=min(missing, BURST_REPLICAS))
    return Step(delete=first_to_go(active, now)[: min(-missing, BURST_REPLICAS)])


def first_to_go(active: Sequence[Pod], now: dt.datetime) -> list[Pod]:
    """The pods in the order in which Kubernetes deletes them.

    First come pods without a node, then those not running, not ready, with a low deletion cost, with many others on
    their node, ready for a short time, restarted often, and young ones.
    """
    on_node = Counter(pod.spec.node_name for pod in active if pod.spec.node_name)

    def rank(pod: Pod) -> tuple[object, ...]:
        ready = pod.ready_since
        created = pod.metadata.creation_timestamp or now
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 1),
            pod.is_ready,
            _cost(pod),
            -on_node[pod.spec.node_name],
            -ready.timestamp() if ready else 0.0,
            -pod.restarts,
            -created.timestamp(),
            pod.metadata.name,
        )

    return sorted(active, key=rank)


def status(owner: ReplicaSet, active: Sequence[Pod], now: dt.datetime, trouble: tuple[str, str] | None) -> Json:
    """The new status. `trouble` is the reason and message of a failure to create or delete pods."""
    labels = (owner.spec.template.get("metadata") or {}).get("labels") or {}
    least = owner.spec.min_ready_seconds
    counts = {
        "fullyLabeledReplicas": sum(labels.items() <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": sum(pod.is_ready for pod in active),
        "availableReplicas": sum(pod.is_available(least, now) for pod in active),
        "observedGeneration": owner.metadata.generation,
    }
    conditions = owner.status.get("conditions") or []
    if trouble is None:
        conditions = without(conditions, "ReplicaFailure")
    else:
        reason, message = trouble
        wanted = {"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message}
        conditions = with_condition(conditions, wanted, now)
    return {"replicas": len(active), **omitting_zeros(counts), "conditions": conditions or None}


def next_available(active: Sequence[Pod], least: int, now: dt.datetime) -> float | None:
    """Seconds until the next pod becomes available."""
    times = (pod.available_at(least) for pod in active)
    waits = [(at - now).total_seconds() for at in times if at is not None and at > now]
    return min(waits, default=None)


def _cost(pod: Pod) -> int:
    with contextlib.suppress(ValueError):
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    return 0


class ReplicaSetController:
    """Keeps as many pods as each replica set wants."""

    def __init__(self, context: WorkloadContext) -> None:
        self._clock = context.clock
        self.kept: ReconciledCache[ReplicaSet] = ReconciledCache(context, REPLICA_SETS)
        self.kept.follow(context.pods)
        self._pod_control: PodControl[ReplicaSet] = PodControl(context, REPLICA_SETS, "replicaset-controller")

    async def run(self) -> None:
        await self.kept.run(self._reconcile)

    async def _reconcile(self, key: Key) -> float | None:
        owner = self.kept.get(key)
        if owner is None:
            return None
        active = [pod for pod in await self._pod_control.claimed(owner) if pod.is_active]
        settled = self._pod_control.expectations.is_satisfied(owner.metadata.uid)
        trouble = await self._act(owner, active) if settled and not owner.metadata.is_being_deleted else None
        now = self._clock.now()
        if not settled:
            # The counts would be out of date.
            return REQUEUE_SECONDS
        await self._pod_control.write_status(owner, owner.status, status(owner, active, now, trouble))
        if trouble is not None:
            return REQUEUE_SECONDS
        return next_available(active, owner.spec.min_ready_seconds, now)

    async def _act(self, owner: ReplicaSet, active: list[Pod]) -> tuple[str, str] | None:
        todo = step(owner.spec.replicas, active, self._clock.now())
        if todo.delete:
            await self._pod_control.delete(owner, todo.delete)
        body = pod_from(owner.spec.template, owner, self._pod_control.reference(owner))
        failed = await self._pod_control.create(owner, [body] * todo.make)
        return ("FailedCreate", str(failed)) if failed is not None else None
