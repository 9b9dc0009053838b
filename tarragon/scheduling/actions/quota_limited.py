"""Which gangs run smaller than they wish because of the quota of their namespace, and in words which quota that is.

The words have no amounts in them that change from moment to moment. Which resources of a quota they name may change as
other jobs come and go: whoever writes them down does not do so each time.
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

_NONE = Queue()


def kept_small(snapshot: Snapshot) -> Mapping[str, str]:
    """By the names of gangs. Where the quota would let one have another replica, it is not the quota."""
    queues = snapshot.rules.queues
    several = [gang for gang in snapshot.running if gang.elastic and queues.get(gang.queue, _NONE).quota]
    if not several:
        return {}
    shares = Shares(snapshot)
    told = ((gang.name, _over(gang, shares)) for gang in several)
    return {name: words for name, words in told if words}


def _over(gang: RunningGang, shares: Shares) -> str:
    there = Counter(replica.type for replica in gang.nodes)
    short = {demand.type: demand.wish - there[demand.type] for demand in gang.demands}
    lacking = [(replica, demand) for replica, demand in missing(gang) if short[demand.type] > 0]
    permitted = shares.permitted(gang.queue, lacking)
    if not lacking or (permitted and not (gang.whole and len(permitted) < len(lacking))):
        return ""
    quota, held = shares.quota(gang.queue), shares.held(gang.queue)
    asked = _asked([demand for _, demand in lacking] if gang.whole else [lacking[0][1]])
    over = {name: limit for name, limit in quota.items() if asked.get(name, 0) > max(0, limit - held.get(name, 0))}
    return f"the quota of {gang.queue} is {wait_messages.words(quota, over)}"


def _asked(demands: Sequence[Demand]) -> Resources:
    return total(demand.each for demand in demands)
