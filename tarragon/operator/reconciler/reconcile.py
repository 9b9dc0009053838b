"""Reconciles one job once: observe, decide, apply."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial

import structlog

from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.reconciler.apply import Means, Refused, apply
from tarragon.operator.reconciler.superseded_guard import WhileItStands
from tarragon.plan.reconcile.decide import decide
from tarragon.plan.view.actions import Step

log = structlog.get_logger(__name__)


async def reconcile(context: Means, informers: World, kind: str, key: Key) -> dt.datetime | None:
    """Returns when to reconcile again even if nothing changes. Raises ApiError if a write failed."""
    observed = informers.observe(kind, key)
    if observed is None:
        informers.refusals.gone(kind, key)
        return None
    if not informers.may_act(kind, observed):
        return None  # The job is requeued as soon as the scheduler has verified its admission.
    framework = informers.frameworks[kind]
    step = decide(framework, observed, context.clock.now())
    try:
        cluster = WhileItStands(context.cluster, partial(informers.is_placed_as, kind, observed.object))
        refused_names = await apply(replace(context, cluster=cluster), framework.resource, observed.object, step)
    except Refused as refused:
        log.info("create refused", error=str(refused))
        informers.refusals.note(kind, key, (refused.reason, str(refused)), context.clock.now())
        return context.clock.now()  # The next reconcile writes the refusal to the status.
    _log_step(step)
    if any(not create.may_be_refused for create in step.creates):
        informers.refusals.forget(kind, key)
    retry_times = [informers.refusals.note_done_without(kind, key, name, context.clock.now()) for name in refused_names]
    return min((at for at in (step.wake_at, *retry_times) if at is not None), default=None)


def _log_step(step: Step) -> None:
    if step.creates or step.deletes or step.events:
        log.info(
            "reconciled",
            creates=len(step.creates),
            deletes=len(step.deletes),
            news=[f"{event.reason}: {event.message}" for event in step.events],
        )
