"""Reconciles one job once: observe, decide, apply."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from tarragon.client.errors import Conflict, Forbidden, NotFound
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.core import PODS
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.informers.informers import Informers
from tarragon.operator.reconciler.apply import ApplyContext, CreateRefused, apply
from tarragon.plan.reconcile.decide import decide
from tarragon.plan.status.pod_mirror import pod_to_read
from tarragon.plan.view.actions import Actions, ObservedJob

log = structlog.get_logger(__name__)
T = TypeVar("T")


async def reconcile(context: ApplyContext, informers: Informers, kind: str, key: Key) -> dt.datetime | None:
    """Returns when to reconcile again even if nothing changes. Raises ApiError if a write failed."""
    observed = informers.observe(kind, key)
    if observed is None:
        informers.create_backoff.forget_job(kind, key)
        return None
    if not informers.is_admission_accepted(kind, observed):
        return None  # The job is requeued as soon as the scheduler has verified its admission.
    if informers.awaits_first_decision(kind, observed):
        return None  # The job is requeued as soon as the scheduler has looked at it, unless that wrote its status.
    framework = informers.frameworks[kind]
    observed = await _with_complete_pod(context.cluster, observed)
    step = decide(framework, observed, context.clock.now())
    try:
        cluster = _SupersededGuard(context.cluster, partial(informers.may_create, kind, observed.object))
        refused_names = await apply(replace(context, cluster=cluster), framework.resource, observed.object, step)
    except CreateRefused as refused:
        log.info("create refused", error=str(refused))
        informers.create_backoff.record_refusal(kind, key, (refused.reason, str(refused)), context.clock.now())
        return context.clock.now()  # The next reconcile writes the refusal to the status.
    _log_step(step)
    if any(not create.is_optional for create in step.creates):
        informers.create_backoff.reset(kind, key)
    retry_times = [
        informers.create_backoff.record_optional_refusal(kind, key, name, context.clock.now()) for name in refused_names
    ]
    return min((at for at in (step.requeue_at, *retry_times) if at is not None), default=None)


async def _with_complete_pod(cluster: Client, observed: ObservedJob) -> ObservedJob:
    """Read the pod that the job's status has to show. Without permission, or if it is gone, the status stays."""
    pod = pod_to_read(observed)
    if pod is None:
        return observed
    try:
        found = await cluster.get(PODS.with_model(dict), pod.metadata.key)
    except (Forbidden, NotFound):
        return observed
    is_same = found["metadata"].get("uid") == pod.metadata.uid
    return replace(observed, complete_pod=found) if is_same else observed


def _log_step(step: Actions) -> None:
    if step.creates or step.deletes or step.events:
        log.info(
            "reconciled",
            creates=len(step.creates),
            deletes=len(step.deletes),
            news=[f"{event.reason}: {event.message}" for event in step.events],
        )


class _SupersededGuard(DelegatingClient):
    """A create raises Conflict if `may_create` returns False: the job, or the GPU that it shares, has changed since the
    step was decided.
    """

    def __init__(self, cluster: Client, may_create: Callable[[Mapping[str, Json]], bool]) -> None:
        super().__init__(cluster)
        self._may_create = may_create

    async def create(self, resource: Resource[T], body: Mapping[str, Json]) -> T:
        if not self._may_create(body):
            message = f"{resource.plural} {body['metadata']['name']} was not created: the job or its GPU has changed"
            raise Conflict(
                {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": message}
            )
        return await super().create(resource, body)
