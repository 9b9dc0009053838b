"""The subresources of pods that accept only POST: `binding` and `eviction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import encode, timestamp
from tarragon.localcluster.admission.budgets import Budgets, Standing, is_healthy
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, Target, WriteOptions, Written
from tarragon.localcluster.registry.delete import Deletes
from tarragon.localcluster.registry.writes import Decision, Writes, opened
from tarragon.localcluster.schema.field_errors import required, unsupported
from tarragon.localcluster.storage.history import Stored


class PodActions:
    """Binding a pod to a node, and evicting one if its disruption budgets allow."""

    def __init__(self, writes: Writes, deletes: Deletes, budgets: Budgets) -> None:
        self._writes = writes
        self._deletes = deletes
        self._budgets = budgets

    async def bind(self, target: Target, body: Json, options: WriteOptions) -> Written:
        def decide() -> Decision[Written]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            bound = _bound(target, opened(stored, target.served), body, timestamp(self._writes.now()))
            change = self._writes.change(target.served, bound, stored, options)
            return Decision([change], _done())

        return await self._writes.run(decide, options)

    async def evict(self, target: Target, body: Json, options: WriteOptions) -> Written:
        """The body may also request a dry run, as `kubectl drain --dry-run=server` does."""
        options = replace(options, dry_run=options.dry_run or _is_dry_run(body))

        def decide() -> Decision[Written]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            pod = opened(stored, target.served)
            if not _needs_no_permission(pod):
                self._refuse_beyond_budget(pod, stored)
            ended = self._deletes.decided(target.served, stored, _delete_options(body), options)
            return Decision(ended.changes, _done())

        return await self._writes.run(decide, options)

    def _refuse_beyond_budget(self, pod: Json, stored: Stored) -> None:
        holding = list(self._budgets.selecting(stored))
        if len(holding) > 1:
            words = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise errors.failure(500, "InternalError", words)
        for budget, standing in holding:
            if not is_healthy(pod) and _lets_the_unhealthy_go(budget, standing):
                continue
            if not standing.may_go:
                raise errors.over_budget(budget["metadata"]["name"], standing.needed, standing.healthy)


def _lets_the_unhealthy_go(budget: Mapping[str, Any], standing: Standing) -> bool:
    """A pod that is not ready is missed by nobody, if enough others are or the budget says so."""
    policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
    return policy == "AlwaysAllow" or 0 < standing.needed <= standing.healthy


def _done() -> Written:
    return Written(encode(errors.created_status()), created=True)


def _bound(target: Target, pod: Json, body: Json, now: str) -> Json:
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
        grace_seconds=grace if isinstance(grace, int) and not isinstance(grace, bool) else None,
    )


def _is_dry_run(body: Mapping[str, Any]) -> bool:
    """Whether the body requests a dry run. Raises Invalid for unknown values."""
    given = body.get("deleteOptions")
    dry_run = given.get("dryRun") if isinstance(given, Mapping) else None
    if dry_run not in (None, [], ["All"]):
        raise errors.invalid_options("DeleteOptions", [unsupported("dryRun", dry_run, ["All"])])
    return bool(dry_run)


def _needs_no_permission(pod: Mapping[str, Any]) -> bool:
    """It has ended, has not begun, or is on its way out."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(pod["metadata"].get("deletionTimestamp"))
