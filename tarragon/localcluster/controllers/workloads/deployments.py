"""The Deployment controller, which creates, resizes and deletes replica sets to roll out new pod templates."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import to_builtins

from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.client.port import DeleteOptions
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import deployment_status, rollout
from tarragon.localcluster.controllers.workloads.context import (
    REQUEUE_SECONDS,
    Expectations,
    ReconciledCache,
    WorkloadContext,
    owners,
    selects,
)
from tarragon.localcluster.controllers.workloads.model import DEPLOYMENTS, REPLICA_SETS, Deployment, Json, ReplicaSet
from tarragon.localcluster.controllers.workloads.pod_control import PodControl
from tarragon.localcluster.controllers.workloads.pods import Pod
from tarragon.localcluster.controllers.workloads.rollout import (
    DESIRED_REPLICAS,
    HISTORY,
    MAX_REPLICAS,
    REVISION,
    Resize,
    Rollout,
)
from tarragon.localcluster.controllers.workloads.templates import (
    HASH_LABEL,
    is_same_template,
    labelled,
    template_hash,
)

_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        *(REVISION, HISTORY, DESIRED_REPLICAS, MAX_REPLICAS),
        "deprecated.deployment.rollback.to",
    }
)


class DeploymentController:
    """Writes replica sets and the Deployment's status. Pods are left to the ReplicaSet controller."""

    def __init__(self, context: WorkloadContext, replica_sets: Informer[ReplicaSet]) -> None:
        self._context = context
        self._cluster = context.cluster
        self._replica_sets = replica_sets
        self._owned = KeyIndex(replica_sets, owners)
        self._orphans = KeyIndex(
            replica_sets, lambda one: [] if one.metadata.controller_identity else [one.metadata.namespace]
        )
        self.kept: ReconciledCache[Deployment] = ReconciledCache(context, DEPLOYMENTS)
        self.kept.follow(replica_sets)
        self._pod_control: PodControl[Deployment] = PodControl(context, DEPLOYMENTS, "deployment-controller")
        self._expectations = Expectations(replica_sets)
        context.pods.add_event_handler(self._follow_pod)

    async def run(self) -> None:
        await self.kept.run(self._reconcile)

    def _follow_pod(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        """Reconcile the Deployment when a pod is gone: the strategy Recreate waits for that."""
        if new is None and old is not None:
            owner = old.metadata.controller_identity
            replica_set = self._replica_sets.objects.get(owner.key) if owner is not None else None
            if replica_set is None or REPLICA_SETS.owner_identity(replica_set.metadata) != owner:
                return
            deployment = self.kept.controller_of(replica_set)
            if deployment is not None:
                self.kept.queue.add(deployment.metadata.key)

    async def _reconcile(self, key: Key) -> float | None:
        deployment = self.kept.get(key)
        if deployment is None:
            return None
        mine = await self._claimed(deployment)
        if not self._expectations.is_satisfied(deployment.metadata.uid):
            return REQUEUE_SECONDS
        family = rollout.family(deployment, mine)
        if deployment.metadata.is_being_deleted:
            await self._write_status(family, "", 0)
            return None
        if not await self._is_numbered(family):
            return REQUEUE_SECONDS
        made, collisions = await self._act(family)
        if self._expectations.is_satisfied(deployment.metadata.uid) and not made:
            await self._delete_old(family)
        return await self._write_status(family, made, collisions)

    async def _write_status(self, family: Rollout, made: str, collisions: int) -> float | None:
        now = self._context.clock.now()
        status = deployment_status.status(family, collisions + _collisions(family.deployment), made, now)
        await self._pod_control.write_status(family.deployment, family.deployment.status, status)
        return deployment_status.next_look(family.deployment, status, now)

    async def _act(self, family: Rollout) -> tuple[str, int]:
        """Return the name of the replica set that was created, and the number of name collisions."""
        step = rollout.step(family, old_pods_run=self._old_pods_run(family))
        for size in step.sizes:
            await self._resize(family, size)
        return await self._make(family, step.make) if step.make is not None else ("", 0)

    def _old_pods_run(self, family: Rollout) -> bool:
        pods = (pod for each in family.old for pod in self._context.owned(REPLICA_SETS.owner_identity(each.metadata)))
        return any(not pod.is_finished for pod in pods)

    # ------------------------------------------------------------------------------------------------ replica sets

    async def _claimed(self, deployment: Deployment) -> list[ReplicaSet]:
        fits = selects(deployment)
        if not deployment.metadata.is_being_deleted:
            for each in [each for each in self._mine(deployment) if not fits(each)]:
                await self._set_owner(deployment, each, owned=False)
            for each in self._at(self._orphans.keys(deployment.metadata.namespace)):
                if fits(each) and not each.metadata.is_being_deleted:
                    await self._set_owner(deployment, each, owned=True)
        return [each for each in self._mine(deployment) if not each.metadata.is_being_deleted]

    def _mine(self, deployment: Deployment) -> list[ReplicaSet]:
        return self._at(self._owned.keys(self._pod_control.identity(deployment)))

    def _at(self, keys: Any) -> list[ReplicaSet]:
        return [self._replica_sets.objects[key] for key in sorted(keys)]

    async def _set_owner(self, deployment: Deployment, each: ReplicaSet, *, owned: bool) -> None:
        others = [one for one in each.metadata.owner_references if one.uid != deployment.metadata.uid]
        references = [*others, self._pod_control.reference(deployment)] if owned else others
        owners = {"ownerReferences": [to_builtins(one) for one in references] or None}
        await self._patch(deployment, each, {"metadata": owners})

    async def _is_numbered(self, family: Rollout) -> bool:
        """Whether the new replica set and the Deployment have their revision. If not, it has just been written."""
        new = family.new
        if new is None:
            return True
        annotations = dict(_copied(family.deployment))
        revision, before = rollout.next_revision(family), rollout.revision_of(new)
        if before < revision:
            annotations[REVISION] = str(revision)
            if before:
                history = [one for one in new.metadata.annotations.get(HISTORY, "").split(",") if one]
                annotations[HISTORY] = ",".join([*history, str(before)])
        change: Json = {}
        if any(new.metadata.annotations.get(name) != value for name, value in annotations.items()):
            change["metadata"] = {"annotations": annotations}
        if new.spec.min_ready_seconds != family.deployment.spec.min_ready_seconds:
            change["spec"] = {"minReadySeconds": family.deployment.spec.min_ready_seconds}
        if change:
            await self._patch(family.deployment, new, change)
            return False
        await self._number(family.deployment, max(before, revision))
        return True

    async def _number(self, deployment: Deployment, revision: int) -> None:
        if deployment.metadata.annotations.get(REVISION) != str(revision):
            change = {"metadata": {"annotations": {REVISION: str(revision)}, "uid": deployment.metadata.uid}}
            with suppress(NotFound):
                await self._cluster.patch(DEPLOYMENTS, deployment.metadata.key, change)

    async def _make(self, family: Rollout, replicas: int) -> tuple[str, int]:
        deployment = family.deployment
        hashed = template_hash(deployment.spec.template, _collisions(deployment))
        body = self._replica_set(family, hashed, replicas)
        try:
            made = await self._cluster.create(REPLICA_SETS, body)
        except AlreadyExists:
            return "", 0 if await self._is_mine(deployment, body) else 1
        except ApiError as error:
            await self._pod_control.record(deployment, "Warning", "ReplicaSetCreateError", f"Failed to create: {error}")
            raise
        self._expectations.expect_version(deployment.metadata.uid, made.metadata.resource_version)
        await self._number(deployment, rollout.next_revision(family))
        if replicas:
            words = f"Scaled up replica set {made.metadata.name} from 0 to {replicas}"
            await self._pod_control.record(deployment, "Normal", "ScalingReplicaSet", words)
        return made.metadata.name, 0

    async def _is_mine(self, deployment: Deployment, body: Json) -> bool:
        """Whether an existing replica set of this name is the Deployment's, and the cache was only behind.

        If not, the name collides with that of another template.
        """
        key = Key(deployment.metadata.namespace, body["metadata"]["name"])
        with suppress(NotFound):
            found = await self._cluster.get(REPLICA_SETS, key)
            self._expectations.expect_version(deployment.metadata.uid, found.metadata.resource_version)
            is_same = is_same_template(found.spec.template, deployment.spec.template)
            return found.metadata.controller_identity in {None, self._pod_control.identity(deployment)} and is_same
        return True

    def _replica_set(self, family: Rollout, hashed: str, replicas: int) -> Json:
        deployment = family.deployment
        selector = deployment.selector
        labels = (deployment.spec.template.get("metadata") or {}).get("labels") or {}
        counts = {DESIRED_REPLICAS: str(deployment.spec.replicas), MAX_REPLICAS: str(family.most)}
        return {
            "metadata": {
                "name": f"{deployment.metadata.name}-{hashed}",
                "namespace": deployment.metadata.namespace,
                "labels": {**labels, HASH_LABEL: hashed},
                "annotations": {**_copied(deployment), **counts, REVISION: str(rollout.next_revision(family))},
                "ownerReferences": [to_builtins(self._pod_control.reference(deployment))],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": deployment.spec.min_ready_seconds,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed}},
                "template": labelled(deployment.spec.template, HASH_LABEL, hashed),
            },
        }

    async def _resize(self, family: Rollout, size: Resize) -> None:
        each = size.replica_set
        counts = {DESIRED_REPLICAS: str(family.deployment.spec.replicas), MAX_REPLICAS: str(family.most)}
        is_recorded = all(each.metadata.annotations.get(name) == value for name, value in counts.items())
        if size.replicas == each.spec.replicas and is_recorded:
            return
        change = {"metadata": {"annotations": counts}, "spec": {"replicas": size.replicas}}
        await self._patch(family.deployment, each, change)
        if size.replicas != each.spec.replicas:
            way = "up" if size.replicas > each.spec.replicas else "down"
            words = f"Scaled {way} replica set {each.metadata.name} from {each.spec.replicas} to {size.replicas}"
            await self._pod_control.record(family.deployment, "Normal", "ScalingReplicaSet", words)

    async def _patch(self, deployment: Deployment, each: ReplicaSet, change: Json) -> None:
        """Patch the replica set on the condition that it has not changed since it was read."""
        seen = {"uid": each.metadata.uid, "resourceVersion": each.metadata.resource_version}
        whole = {**change, "metadata": {**change.get("metadata", {}), **seen}}
        changed = await self._cluster.patch(REPLICA_SETS, each.metadata.key, whole)
        self._expectations.expect_version(deployment.metadata.uid, changed.metadata.resource_version)

    async def _delete_old(self, family: Rollout) -> None:
        for each in rollout.beyond_history(family):
            with suppress(NotFound, Conflict):
                options = DeleteOptions(uid=each.metadata.uid, propagation_policy="Background")
                await self._cluster.delete(REPLICA_SETS, each.metadata.key, options)


def _collisions(deployment: Deployment) -> int:
    return int(deployment.status.get("collisionCount") or 0)


def _copied(deployment: Deployment) -> Json:
    """The annotations that replica sets inherit, so that each revision keeps its change cause."""
    return {name: text for name, text in deployment.metadata.annotations.items() if name not in _NOT_COPIED}
