"""Stateful sets: pods with numbers, names and claims of their own."""

from __future__ import annotations

from contextlib import suppress

from msgspec import to_builtins

from tarragon.client.errors import AlreadyExists
from tarragon.client.informer.reflector import Cache
from tarragon.kube.core import PERSISTENT_VOLUME_CLAIMS
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import replicas, stateful_plan
from tarragon.localcluster.controllers.workloads.context import LOOK_AGAIN_SECONDS, Ground, Kept
from tarragon.localcluster.controllers.workloads.model import STATEFUL_SETS, ControllerRevision, Json, StatefulSet
from tarragon.localcluster.controllers.workloads.pod_control import Hands, pod_from
from tarragon.localcluster.controllers.workloads.revisions import HASH_LABEL, Revisions, template_of
from tarragon.localcluster.controllers.workloads.stateful_plan import Scene

_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


class StatefulSetController:
    """One pod at a time, unless its set says that they may come together."""

    def __init__(self, ground: Ground, revisions: Cache[ControllerRevision]) -> None:
        self._cluster = ground.cluster
        self._clock = ground.clock
        self.kept: Kept[StatefulSet] = Kept(ground, STATEFUL_SETS)
        self.kept.follow(ground.pods)
        self.kept.follow(revisions)
        self._hands: Hands[StatefulSet] = Hands(ground, STATEFUL_SETS, "statefulset-controller")
        self._revisions = Revisions(ground, revisions, self._hands)

    async def run(self) -> None:
        await self.kept.run(self._look)

    async def _look(self, key: Key) -> float | None:
        owner = self.kept.get(key)
        if owner is None:
            return None
        pods = await self._hands.claimed(owner)
        revision = await self._revisions.current(owner, owner.spec.template)
        if revision is None or not self._hands.unseen.is_settled(owner.metadata.uid):
            return LOOK_AGAIN_SECONDS
        numbered = {number: pod for pod in pods if (number := stateful_plan.number_of(owner, pod)) is not None}
        scene = Scene(owner=owner, pods=numbered, update=revision.metadata.name, now=self._clock.now())
        trouble = False if owner.metadata.is_ending else await self._act(scene)
        await self._hands.write_status(owner, owner.status, stateful_plan.status(scene))
        in_use = [scene.current, *(pod.metadata.labels.get(HASH_LABEL, "") for pod in pods)]
        await self._revisions.forget(owner, in_use, owner.spec.revision_history_limit)
        if trouble:
            return LOOK_AGAIN_SECONDS
        return replicas.next_available(pods, owner.spec.min_ready_seconds, scene.now)

    async def _act(self, scene: Scene) -> bool:
        """Whether something went wrong."""
        step = stateful_plan.step(scene)
        await self._hands.delete(scene.owner, step.delete)
        for number in step.make:
            await self._make_claims(scene.owner, number)
        bodies = [self._pod(scene, number) for number in step.make]
        return await self._hands.make(scene.owner, bodies) is not None

    def _pod(self, scene: Scene, number: int) -> Json:
        owner, revision = scene.owner, stateful_plan.revision_for(scene, number)
        known = {each.metadata.name: template_of(each) for each in self._revisions.of(owner)}
        body = pod_from(known.get(revision, owner.spec.template), owner, self._hands.reference(owner))
        name = f"{owner.metadata.name}-{number}"
        metadata = {field: value for field, value in body["metadata"].items() if field != "generateName"}
        labels = {HASH_LABEL: revision, _NAME_LABEL: name, _INDEX_LABEL: str(number)}
        metadata |= {"name": name, "labels": {**metadata.get("labels", {}), **labels}}
        spec = {**body["spec"], "hostname": name, "volumes": _volumes(owner, name, body["spec"])}
        if owner.spec.service_name:
            spec["subdomain"] = owner.spec.service_name
        return {**body, "metadata": metadata, "spec": spec}

    async def _make_claims(self, owner: StatefulSet, number: int) -> None:
        """They outlive their pods: one that is there is taken as it is."""
        is_deleted_with_it = owner.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete"
        for template in owner.spec.volume_claim_templates:
            said = template.get("metadata") or {}
            metadata: Json = {
                "name": f"{said.get('name')}-{owner.metadata.name}-{number}",
                "namespace": owner.metadata.namespace,
                "labels": {**(said.get("labels") or {}), **(owner.selector.get("matchLabels") or {})},
                "annotations": said.get("annotations") or {},
            }
            if is_deleted_with_it:
                metadata["ownerReferences"] = [to_builtins(self._hands.reference(owner))]
            with suppress(AlreadyExists):
                await self._cluster.create(
                    PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": template.get("spec") or {}}
                )


def _volumes(owner: StatefulSet, pod: str, spec: Json) -> list[Json]:
    claims = {
        str((template.get("metadata") or {}).get("name")): template for template in owner.spec.volume_claim_templates
    }
    others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
    return [
        *({"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in claims),
        *others,
    ]
