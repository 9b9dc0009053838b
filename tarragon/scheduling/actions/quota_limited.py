"""Says of a gang that it runs smaller than requested because of its queue's quota, and which quota that is.

The message contains no amounts that change from moment to moment. The resources that it names may change as other jobs
come and go, so a caller should not write each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tarragon.base.resources import Resources, add_resources
from tarragon.scheduling.actions.running_gangs import missing_replicas
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.shares import QueueUsage
from tarragon.scheduling.explain import wait_messages


def exceeded_quota(gang: RunningGang, shares: QueueUsage) -> str:
    """Return the quota that limits the gang, as a message; empty if its quota would allow another replica."""
    if not gang.is_elastic or not shares.quota(gang.queue):
        return ""
    counts = Counter(replica.type for replica in gang.nodes)
    lacking_count = {demand.type: demand.requested - counts[demand.type] for demand in gang.demands}
    lacking = [(replica, demand) for replica, demand in missing_replicas(gang) if lacking_count[demand.type] > 0]
    permitted = shares.within_quota(gang.queue, lacking)
    if not lacking or (permitted and not (gang.resizes_by_restart and len(permitted) < len(lacking))):
        return ""
    quota, held = shares.quota(gang.queue), shares.held(gang.queue)
    requests = _requests([demand for _, demand in lacking] if gang.resizes_by_restart else [lacking[0][1]])
    exceeded = {
        name: limit for name, limit in quota.items() if requests.get(name, 0) > max(0, limit - held.get(name, 0))
    }
    return f"the quota of {gang.queue} is {wait_messages.format_resources(quota, exceeded)}"


def _requests(demands: Sequence[Demand]) -> Resources:
    return add_resources(demand.resources for demand in demands)
