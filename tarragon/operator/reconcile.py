"""One job, once: look, decide, do."""

from __future__ import annotations

import datetime as dt

from tarragon.base.clock import Clock
from tarragon.cluster.port import Cluster
from tarragon.kube.meta import Key
from tarragon.operator.apply import apply
from tarragon.operator.gather import World
from tarragon.plan.decide import decide


async def reconcile(cluster: Cluster, clock: Clock, world: World, kind: str, key: Key) -> dt.datetime | None:
    """When to look again even if nothing changes. Raises ApiError when a write was refused."""
    observed = world.observe(kind, key)
    if observed is None:
        return None
    framework = world.frameworks[kind]
    step = decide(framework, observed, clock.now())
    await apply(cluster, clock, framework.resource, observed.object, step)
    return step.wake_at
