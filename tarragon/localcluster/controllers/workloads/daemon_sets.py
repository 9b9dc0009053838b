"""Daemon sets: one pod on each node that will have it."""

from __future__ import annotations

from tarragon.client.informer.reflector import Cache
from tarragon.kube import core
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import daemon_plan, replicas
from tarragon.localcluster.controllers.workloads.context import LOOK_AGAIN_SECONDS, Ground, Kept
from tarragon.localcluster.controllers.workloads.daemon_plan import Scene
from tarragon.localcluster.controllers.workloads.model import DAEMON_SETS, ControllerRevision, DaemonSet, Json
from tarragon.localcluster.controllers.workloads.pod_control import Hands, pod_from
from tarragon.localcluster.controllers.workloads.revisions import HASH_LABEL, Revisions


class DaemonSetController:
    """Its pods are bound by the scheduler, each by an affinity that only one node satisfies."""

    def __init__(self, ground: Ground, revisions: Cache[ControllerRevision]) -> None:
        self._clock = ground.clock
        self.nodes: Cache[core.Node] = ground.cache(core.NODES)
        self.kept: Kept[DaemonSet] = Kept(ground, DAEMON_SETS)
        self.kept.follow(ground.pods)
        self.kept.follow(revisions)
        self.nodes.subscribe(self._follow_node)
        self._hands: Hands[DaemonSet] = Hands(ground, DAEMON_SETS, "daemonset-controller")
        self._revisions = Revisions(ground, revisions, self._hands)

    async def run(self) -> None:
        await self.kept.run(self._look)

    def _follow_node(self, _key: Key, old: core.Node | None, new: core.Node | None) -> None:
        """Heartbeats are no news."""
        if _place(old) != _place(new):
            for key in self.kept.cache.objects:
                self.kept.worklist.add(key)

    async def _look(self, key: Key) -> float | None:
        owner = self.kept.get(key)
        if owner is None:
            return None
        pods = await self._hands.claimed(owner)
        revision = await self._revisions.current(owner, owner.spec.template)
        if revision is None or not self._hands.unseen.is_settled(owner.metadata.uid):
            return LOOK_AGAIN_SECONDS
        scene = Scene(
            owner=owner,
            nodes=[node for _, node in sorted(self.nodes.objects.items())],
            pods=pods,
            update=revision.metadata.name.removeprefix(f"{owner.metadata.name}-"),
            now=self._clock.now(),
        )
        trouble = False if owner.metadata.is_ending else await self._act(scene)
        await self._hands.write_status(owner, owner.status, daemon_plan.status(scene))
        in_use = [f"{owner.metadata.name}-{pod.metadata.labels.get(HASH_LABEL)}" for pod in pods]
        await self._revisions.forget(owner, in_use, owner.spec.revision_history_limit)
        if trouble:
            return LOOK_AGAIN_SECONDS
        return replicas.next_available(pods, owner.spec.min_ready_seconds, scene.now)

    async def _act(self, scene: Scene) -> bool:
        """Whether something went wrong."""
        step = daemon_plan.step(scene)
        await self._hands.delete(scene.owner, step.delete)
        bodies = [self._pod(scene, node) for node in step.make]
        return await self._hands.make(scene.owner, bodies) is not None

    def _pod(self, scene: Scene, node: str) -> Json:
        body = pod_from(scene.owner.spec.template, scene.owner, self._hands.reference(scene.owner))
        spec, metadata = body["spec"], body["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), HASH_LABEL: scene.update}
        known = [each for each in daemon_plan.TOLERATIONS if each not in (spec.get("tolerations") or ())]
        body["spec"] = {
            **spec,
            "affinity": daemon_plan.bound_for(node, spec.get("affinity")),
            "tolerations": [*(spec.get("tolerations") or ()), *known],
        }
        return body


def _place(node: core.Node | None) -> object:
    """What of a node decides whether a daemon runs there."""
    return None if node is None else (node.metadata.labels, node.spec)
