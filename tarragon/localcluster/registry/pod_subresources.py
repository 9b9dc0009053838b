"""The subresources of pods that accept only POST: `binding` and `eviction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import encode, format_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, RequestTarget, WriteOptions, WriteResult
from tarragon.localcluster.registry.delete import Deleter
from tarragon.localcluster.registry.writes import WriteDecision, WriteTransaction, decode_stored
from tarragon.localcluster.schema.field_errors import required, unsupported


class PodSubresources:
    """Binds pods to nodes, and evicts them."""

    def __init__(self, writes: WriteTransaction, deletes: Deleter) -> None:
        self._writes = writes
        self._deletes = deletes

    async def bind(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        def decide() -> WriteDecision[WriteResult]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            bound = _bound(target, decode_stored(stored, target.served), body, format_time(self._writes.now()))
            change = self._writes.change(target.served, bound, stored, options)
            return WriteDecision([change], _done())

        return await self._writes.run(decide, options)

    async def evict(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        """The body may also request a dry run, as `kubectl drain --dry-run=server` does."""
        options = replace(options, dry_run=options.dry_run or _is_dry_run(body))

        def decide() -> WriteDecision[WriteResult]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            ended = self._deletes.decide(target.served, stored, _delete_options(body), options)
            return WriteDecision(ended.changes, _done())

        return await self._writes.run(decide, options)


def _done() -> WriteResult:
    return WriteResult(encode(errors.created_status()), created=True)


def _bound(target: RequestTarget, pod: Json, body: Json, now: str) -> Json:
    reference = body.get("target")
    node = reference.get("name") if isinstance(reference, Mapping) else None
    if not isinstance(node, str) or not node:
        raise errors.invalid(target.served, target.name, [required("target.name")])
    spec, metadata = pod["spec"], pod["metadata"]
    if metadata.get("deletionTimestamp"):
        raise errors.binding_conflict(target.name, f"pod {target.name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        words = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
        raise errors.binding_conflict(target.name, words)
    if spec.get("schedulingGates"):
        raise errors.binding_conflict(target.name, f"pod {target.name} has non-empty .spec.schedulingGates")
    binding_metadata = body.get("metadata")
    annotations = binding_metadata.get("annotations") if isinstance(binding_metadata, Mapping) else None
    if isinstance(annotations, Mapping) and annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    spec["nodeName"] = node
    status = pod.setdefault("status", {})
    others = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    status["conditions"] = [*others, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
    return pod


def _delete_options(body: Mapping[str, Any]) -> DeleteOptions:
    given = body.get("deleteOptions")
    given = given if isinstance(given, Mapping) else {}
    preconditions = given.get("preconditions")
    preconditions = preconditions if isinstance(preconditions, Mapping) else {}
    grace = given.get("gracePeriodSeconds")
    return DeleteOptions(
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        grace_period_seconds=grace if isinstance(grace, int) and not isinstance(grace, bool) else None,
    )


def _is_dry_run(body: Mapping[str, Any]) -> bool:
    """Whether the body requests a dry run. Raises Invalid for unknown values."""
    given = body.get("deleteOptions")
    dry_run = given.get("dryRun") if isinstance(given, Mapping) else None
    if dry_run not in (None, [], ["All"]):
        raise errors.invalid_options("DeleteOptions", [unsupported("dryRun", dry_run, ["All"])])
    return bool(dry_run)
