"""Publishes the scheduler's configuration as the data of two ConfigMaps, and decodes it.

One may be read by all users and names no namespaces: the policy, the durations, whether shares are fair. The other has
each namespace's weight and quota, which are not for all users.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from tarragon.base import quantity
from tarragon.kube.meta import PartialObject
from tarragon.plan.config.queues import NAMESPACES, QUOTA, WEIGHT, decode_queue_file
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES, QueueRules, SchedulingRules

RULES_CONFIG_MAP, SHARES_CONFIG_MAP = "tarragon-rules", "tarragon-shares"
"""The names of the two ConfigMaps, which are in the namespace of the operator's Lease."""
SYSTEM_NAMESPACE, EMBEDDED_NAMESPACE = "tarragon-system", "kube-public"
"""Their default namespaces: of an operator that was installed from deploy/, and of the embedded one.

Ordinary users can't write to these namespaces, so that ConfigMaps there take precedence over all others.
"""

ConfigMapData = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedConfig:
    """The scheduler's policy and rules."""

    policy: str = DEFAULT_POLICY
    rules: SchedulingRules = field(default_factory=SchedulingRules)


class _PublishedRules(PartialObject, frozen=True):
    policy: str
    aged: float
    idle: float
    cool_down: float
    fair: bool
    preempt: bool
    shares: int = 0
    """The number of namespaces with a weight or quota. With 0, readers do not need the other ConfigMap."""


def encode_config_maps(ways: PublishedConfig) -> Mapping[str, ConfigMapData]:
    """Return the data by ConfigMap name, in the order in which the ConfigMaps are to be written.

    The public one is written last, so that the other one exists when a reader of the public one looks for it.
    """
    rules = ways.rules
    rules_data = {
        "policy": ways.policy,
        "aged": f"{rules.starvation_seconds:.15g}",
        "idle": f"{rules.idle_seconds:.15g}",
        "coolDown": f"{rules.cool_down_seconds:.15g}",
        "fair": json.dumps(rules.is_fair_share),
        "preempt": json.dumps(rules.is_preemption_enabled),
        "shares": str(len(rules.queues)),
    }
    shares = {name: _share(queue) for name, queue in sorted(rules.queues.items())}
    return {SHARES_CONFIG_MAP: {NAMESPACES: json.dumps(shares)}, RULES_CONFIG_MAP: rules_data}


def decode_rules(data: ConfigMapData) -> tuple[PublishedConfig, int] | None:
    """Decode the public ConfigMap; the second value is the number of namespaces with a weight or quota.

    None if another version wrote it with values that this one does not know.
    """
    try:
        decoded = msgspec.convert(data, _PublishedRules, strict=False)
    except msgspec.ValidationError:
        return None
    durations = (decoded.aged, decoded.idle, decoded.cool_down)
    if decoded.policy not in POLICY_NAMES or not all(0 <= each < math.inf for each in durations):
        return None
    aged, idle, cool_down = durations
    rules = SchedulingRules(
        starvation_seconds=aged,
        idle_seconds=idle,
        cool_down_seconds=cool_down,
        is_fair_share=decoded.fair,
        is_preemption_enabled=decoded.preempt,
    )
    return PublishedConfig(policy=decoded.policy, rules=rules), decoded.shares


def decode_shares(ways: PublishedConfig, data: ConfigMapData) -> PublishedConfig | None:
    """Return `ways` with the namespaces' shares of the other ConfigMap; None if it can't be decoded."""
    try:
        shares = decode_queue_file({NAMESPACES: json.loads(data.get(NAMESPACES, "{}"))})
    except (ValueError, RecursionError):
        return None
    return None if shares.problems else replace(ways, rules=replace(ways.rules, queues=shares.rules.queues))


def _share(queue: QueueRules) -> Mapping[str, object]:
    return {
        WEIGHT: queue.weight,
        QUOTA: {name: quantity.format_milli(amount) for name, amount in sorted(queue.quota.items())},
    }
