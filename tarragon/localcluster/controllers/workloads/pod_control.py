"""Creates, deletes, adopts and releases pods for the workload controllers, and records events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from msgspec import to_builtins

from tarragon.client.errors import ApiError, Conflict, NotFound
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import DeleteOptions
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import OwnerIdentity, OwnerReference, Resource
from tarragon.localcluster.controllers.workloads.context import Expectations, WorkloadContext, selects
from tarragon.localcluster.controllers.workloads.model import Json, Owner
from tarragon.localcluster.controllers.workloads.pods import PODS, Pod

T = TypeVar("T", bound=Owner)

BURST_REPLICAS = 500
"""The most pods that one reconciliation creates or deletes."""


class PodControl(Generic[T]):
    """The pod control of one controller. `expectations` are its expectations."""

    def __init__(self, context: WorkloadContext, resource: Resource[T], component: str) -> None:
        self._context = context
        self._cluster = context.cluster
        self._resource = resource
        self._recorder = EventRecorder(context.cluster, context.clock, component)
        self.expectations: Expectations[Pod] = Expectations(context.pods)

    async def claimed(self, owner: T) -> list[Pod]:
        """The pods of the owner, after adopting matching orphans and releasing pods that no longer match."""
        fits = selects(owner)

        def stays(pod: Pod) -> bool:
            return fits(pod) or owner.metadata.is_being_deleted or pod.metadata.is_being_deleted

        identity = self.identity(owner)
        for pod in [pod for pod in self._context.owned(identity) if not stays(pod)]:
            await self._set_owner(owner, pod, owned=False)
        if not owner.metadata.is_being_deleted:
            orphans = self._context.orphans(owner.metadata.namespace)
            adoptable = [pod for pod in orphans if pod.is_active and fits(pod)]
            if adoptable and await self._still_exists(owner):
                for pod in adoptable:
                    await self._set_owner(owner, pod, owned=True)
        # Read again: the cache may have received these writes.
        return [pod for pod in self._context.owned(identity) if stays(pod)]

    async def _still_exists(self, owner: T) -> bool:
        """Whether a fresh read shows the owner: one that is being deleted must not adopt the pods that it orphaned."""
        with suppress(NotFound):
            now = await self._cluster.get(self._resource, owner.metadata.key)
            return now.metadata.uid == owner.metadata.uid and not now.metadata.is_being_deleted
        return False

    async def _set_owner(self, owner: T, pod: Pod, *, owned: bool) -> None:
        others = [each for each in pod.metadata.owner_references if each.uid != owner.metadata.uid]
        references = [*others, self.reference(owner)] if owned else others
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.metadata.resource_version,
            "ownerReferences": [to_builtins(each) for each in references] or None,
        }
        with suppress(NotFound, Conflict):  # the watch shows the change, and the owner is reconciled again
            changed = await self._cluster.patch(PODS, pod.metadata.key, {"metadata": metadata})
            self.expectations.expect_version(owner.metadata.uid, changed.metadata.resource_version)

    def identity(self, owner: T) -> OwnerIdentity:
        """The identity that `reference` names, which is the same in all versions of the API."""
        return self._resource.owner_identity(owner.metadata)

    def reference(self, owner: T) -> OwnerReference:
        return OwnerReference(
            api_version=self._resource.api_version,
            kind=self._resource.kind,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )

    async def create(self, owner: T, bodies: Sequence[Json]) -> ApiError | None:
        """Create pods in batches of 1, 2, 4, …, so that a refusal costs few requests. Return an error, if any."""
        made, turn = 0, 1
        while made < len(bodies):
            batch = bodies[made : made + turn]
            results = await asyncio.gather(*(self._make_one(owner, body) for body in batch))
            if trouble := next((one for one in results if one is not None), None):
                return trouble
            made, turn = made + len(batch), turn * 2
        return None

    async def _make_one(self, owner: T, body: Json) -> ApiError | None:
        try:
            pod = await self._cluster.create(PODS, body)
        except ApiError as error:
            await self.record(owner, "Warning", "FailedCreate", f"Error creating: {error}")
            return error
        self.expectations.expect_version(owner.metadata.uid, pod.metadata.resource_version)
        await self.record(owner, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        return None

    async def delete(self, owner: T, pods: Sequence[Pod]) -> None:
        await asyncio.gather(*(self._delete_one(owner, pod) for pod in pods))

    async def _delete_one(self, owner: T, pod: Pod) -> None:
        with suppress(NotFound, Conflict):
            await self._cluster.delete(PODS, pod.metadata.key, DeleteOptions(uid=pod.uid))
            self.expectations.expect_deletion(owner.metadata.uid, pod)
            await self.record(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")

    async def write_status(self, owner: T, known: Json, status: Json) -> None:
        """Merge `status` into the object's status `known`, if that changes anything. None removes a field."""
        if apply_merge_patch(known, status) == known:
            return
        metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
        with suppress(NotFound):
            change = {"metadata": metadata, "status": status}
            await self._cluster.patch(self._resource, owner.metadata.key, change, subresource="status")

    async def record(self, owner: T, kind: Any, reason: str, message: str) -> None:
        about = ObjectReference(
            api_version=self._resource.api_version,
            kind=self._resource.kind,
            key=owner.metadata.key,
            uid=owner.metadata.uid,
        )
        await self._recorder.record(Event(involved_object=about, type=kind, reason=reason, message=message))


def pod_from(template: Mapping[str, Any], owner: Owner, reference: OwnerReference) -> Json:
    """A pod from the template, whose generated name begins with that of its owner."""
    said = template.get("metadata") or {}
    metadata: Json = {
        "generateName": f"{owner.metadata.name}-",
        "namespace": owner.metadata.namespace,
        "ownerReferences": [to_builtins(reference)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if said.get(field):
            metadata[field] = said[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def omitting_zeros(counts: Mapping[str, int]) -> Json:
    """Replace zero by None, which removes the field, as Go's `omitempty` does."""
    return {field: value or None for field, value in counts.items()}
