"""Finds gangs that run smaller than requested because of their queue's quota, and says which quota that is.

The messages contain no amounts that change from moment to moment. The resources that they name may change as other jobs
come and go, so a caller should not write each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tarragon.base.resources import Resources, total
from tarragon.scheduling.actions.running import missing
from tarragon.scheduling.api.rules import Queue
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot
from tarragon.scheduling.cycle.shares import Shares
from tarragon.scheduling.explain import wait_messages

_DEFAULT = Queue()


def kept_small(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the messages by gang name. A gang that the quota would allow another replica is not limited by it."""
    queues = snapshot.rules.queues
    candidates = [gang for gang in snapshot.running if gang.elastic and queues.get(gang.queue, _DEFAULT).quota]
    if not candidates:
        return {}
    shares = Shares(snapshot)
    messages = ((gang.name, _exceeded_quota(gang, shares)) for gang in candidates)
    return {name: message for name, message in messages if message}


def _exceeded_quota(gang: RunningGang, shares: Shares) -> str:
    counts = Counter(replica.type for replica in gang.nodes)
    lacking_count = {demand.type: demand.wish - counts[demand.type] for demand in gang.demands}
    lacking = [(replica, demand) for replica, demand in missing(gang) if lacking_count[demand.type] > 0]
    permitted = shares.permitted(gang.queue, lacking)
    if not lacking or (permitted and not (gang.whole and len(permitted) < len(lacking))):
        return ""
    quota, held = shares.quota(gang.queue), shares.held(gang.queue)
    requests = _requests([demand for _, demand in lacking] if gang.whole else [lacking[0][1]])
    exceeded = {
        name: limit for name, limit in quota.items() if requests.get(name, 0) > max(0, limit - held.get(name, 0))
    }
    return f"the quota of {gang.queue} is {wait_messages.words(quota, exceeded)}"


def _requests(demands: Sequence[Demand]) -> Resources:
    return total(demand.each for demand in demands)
