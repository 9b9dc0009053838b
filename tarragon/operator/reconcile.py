"""One job, once: look, decide, do."""

from __future__ import annotations

import datetime as dt

import structlog

from tarragon.base.clock import Clock
from tarragon.cluster.port import Cluster
from tarragon.kube.meta import Key
from tarragon.operator.apply import Refused, apply
from tarragon.operator.gather import World
from tarragon.plan.decide import decide

log = structlog.get_logger(__name__)


async def reconcile(cluster: Cluster, clock: Clock, world: World, kind: str, key: Key) -> dt.datetime | None:
    """When to look again even if nothing changes. Raises ApiError when a write was refused."""
    observed = world.observe(kind, key)
    if observed is None:
        world.refusals.forget(kind, key)
        return None
    framework = world.frameworks[kind]
    step = decide(framework, observed, clock.now())
    try:
        await apply(cluster, clock, framework.resource, observed.object, step)
    except Refused as refused:
        log.info("refused", job=str(key), kind=kind, error=str(refused))
        world.refusals.note(kind, key, (refused.reason, str(refused)), clock.now())
        return clock.now()  # The next step puts it on record.
    if step.creates:
        world.refusals.forget(kind, key)
    return step.wake_at
