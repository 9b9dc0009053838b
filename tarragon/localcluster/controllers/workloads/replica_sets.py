"""Replica sets: as many pods as they say."""

from __future__ import annotations

from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import replicas
from tarragon.localcluster.controllers.workloads.context import LOOK_AGAIN_SECONDS, Ground, Kept
from tarragon.localcluster.controllers.workloads.model import REPLICA_SETS, ReplicaSet
from tarragon.localcluster.controllers.workloads.pod_control import Hands, pod_from
from tarragon.localcluster.controllers.workloads.pods import Pod


class ReplicaSetController:
    def __init__(self, ground: Ground) -> None:
        self._clock = ground.clock
        self.kept: Kept[ReplicaSet] = Kept(ground, REPLICA_SETS)
        self.kept.follow(ground.pods)
        self._hands: Hands[ReplicaSet] = Hands(ground, REPLICA_SETS, "replicaset-controller")

    async def run(self) -> None:
        await self.kept.run(self._look)

    async def _look(self, key: Key) -> float | None:
        owner = self.kept.get(key)
        if owner is None:
            return None
        active = [pod for pod in await self._hands.claimed(owner) if pod.is_active]
        settled = self._hands.unseen.is_settled(owner.metadata.uid)
        trouble = await self._act(owner, active) if settled and not owner.metadata.is_ending else None
        now = self._clock.now()
        if not settled:
            # What is counted now is out of date; a trouble, if any, will be met again.
            return LOOK_AGAIN_SECONDS
        await self._hands.write_status(owner, owner.status, replicas.status(owner, active, now, trouble))
        if trouble is not None:
            return LOOK_AGAIN_SECONDS
        return replicas.next_available(active, owner.spec.min_ready_seconds, now)

    async def _act(self, owner: ReplicaSet, active: list[Pod]) -> tuple[str, str] | None:
        step = replicas.step(owner.spec.replicas, active, self._clock.now())
        if step.delete:
            await self._hands.delete(owner, step.delete)
        body = pod_from(owner.spec.template, owner, self._hands.reference(owner))
        failed = await self._hands.make(owner, [body] * step.make)
        return ("FailedCreate", str(failed)) if failed is not None else None
