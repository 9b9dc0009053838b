"""What an operator lets others know of how it decides, as the data of two ConfigMaps.

One is for everybody and names nobody: the policy, the times, whether shares are fair. The other has the part of each
namespace; whose those are, and how much they may hold, is not for everybody.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from tarragon.base import quantity
from tarragon.kube.meta import Struct
from tarragon.plan.config.queues import NAMESPACES, QUOTA, WEIGHT, read
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES, Queue, Rules

RULES, SHARES = "tarragon-rules", "tarragon-shares"
"""How the two are called, in the namespace of the operator's Lease."""
SYSTEM, LOCAL = "tarragon-system", "kube-public"
"""Where they are if nobody has said otherwise: of an operator that deploy/ has installed, and of the embedded one.
Not everybody may write there: they count before all others."""

Data = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """By which an operator decides who starts, when and where."""

    policy: str = DEFAULT_POLICY
    rules: Rules = field(default_factory=Rules)


class _Said(Struct, frozen=True):
    policy: str
    aged: float
    idle: float
    cool_down: float
    fair: bool
    preempt: bool
    shares: int = 0
    """Namespaces that have a part of their own: without any, nobody needs the other ConfigMap."""


def written(ways: Ways) -> Mapping[str, Data]:
    """By the names of the ConfigMaps, in the order in which they are to be written.

    Whoever reads the one for everybody finds that the other one, which it tells to look for, is there.
    """
    rules = ways.rules
    told = {
        "policy": ways.policy,
        "aged": f"{rules.aged:.15g}",
        "idle": f"{rules.idle:.15g}",
        "coolDown": f"{rules.cool_down:.15g}",
        "fair": json.dumps(rules.is_fair),
        "preempt": json.dumps(rules.preempts),
        "shares": str(len(rules.queues)),
    }
    parts = {name: _part(queue) for name, queue in sorted(rules.queues.items())}
    return {SHARES: {NAMESPACES: json.dumps(parts)}, RULES: told}


def understood(data: Data) -> tuple[Ways, int] | None:
    """Of the one for everybody, with the number of namespaces that have a part of their own.

    None where another version has said it, in words that this one does not know.
    """
    try:
        said = msgspec.convert(data, _Said, strict=False)
    except msgspec.ValidationError:
        return None
    times = (said.aged, said.idle, said.cool_down)
    if said.policy not in POLICY_NAMES or not all(0 <= each < math.inf for each in times):
        return None
    aged, idle, cool_down = times
    rules = Rules(aged=aged, idle=idle, cool_down=cool_down, is_fair=said.fair, preempts=said.preempt)
    return Ways(policy=said.policy, rules=rules), said.shares


def with_shares(ways: Ways, data: Data) -> Ways | None:
    """With what the other one says; None as above."""
    try:
        parts = read({NAMESPACES: json.loads(data.get(NAMESPACES, "{}"))})
    except (ValueError, RecursionError):
        return None
    return None if parts.problems else replace(ways, rules=replace(ways.rules, queues=parts.rules.queues))


def _part(queue: Queue) -> Mapping[str, object]:
    return {WEIGHT: queue.weight, QUOTA: {name: quantity.text(amount) for name, amount in sorted(queue.quota.items())}}
