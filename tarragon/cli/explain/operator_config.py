"""Reads the scheduling policy and rules that a cluster's operator has published in ConfigMaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.output.words import joined
from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.port import Selector
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Json, Key
from tarragon.plan.config.published import (
    EMBEDDED_NAMESPACE,
    RULES_CONFIG_MAP,
    SHARES_CONFIG_MAP,
    SYSTEM_NAMESPACE,
    ConfigMapData,
    PublishedConfig,
    decode_rules,
    decode_shares,
)

RAW_CONFIG_MAPS = CONFIG_MAPS.with_model(dict)
ASSUMED = "assuming the default policy and rules of an operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """The operator's scheduling configuration. `assumed_because` is empty if the operator published it."""

    config: PublishedConfig = field(default_factory=PublishedConfig)
    assumed_because: str = ""
    hides_shares: bool = False
    """Namespaces have weights or quotas that this user may not read."""

    def lines(self) -> Iterator[str]:
        """Yield the settings that differ from the defaults, or why the defaults are assumed."""
        if self.assumed_because:
            yield f"{ASSUMED}: {self.assumed_because}"
            return
        changed = list(_changed_settings(self.config))
        if changed:
            yield f"the operator is configured with {joined(changed)}"

    def fields(self) -> Json:
        rules = self.config.rules
        return {
            "policy": self.config.policy,
            "aged": rules.starvation_seconds,
            "idle": rules.idle_seconds,
            "coolDown": rules.cool_down_seconds,
            "fair": rules.is_fair_share,
            "preempt": rules.is_preemption_enabled,
            "assumed": bool(self.assumed_because),
        }


async def read_published_config(reader: ClusterReader, namespace: str) -> OperatorConfig:
    """Find the published configuration of the operator that schedules the jobs in `namespace`."""
    found = await _found(reader, namespace)
    if not found:
        return OperatorConfig(assumed_because="it has published none that you may read; older versions publish none")
    home = _home(found)
    if home is None:
        places = joined(sorted(found))
        return OperatorConfig(
            assumed_because=f"there are ConfigMaps {RULES_CONFIG_MAP} in {places}, and the operator's is not known"
        )
    incompatible = OperatorConfig(assumed_because=f"the one published in {home} is from an incompatible version")
    parsed = decode_rules(found[home])
    if parsed is None:
        return incompatible
    ways, parts = parsed
    if not parts:
        return OperatorConfig(config=ways)
    try:
        shares = await reader.get(RAW_CONFIG_MAPS, Key(home, SHARES_CONFIG_MAP))
    except Forbidden:
        return OperatorConfig(config=ways, hides_shares=True)
    except NotFound:
        return OperatorConfig(assumed_because=f"the ConfigMap {SHARES_CONFIG_MAP} in {home} is missing")
    whole = decode_shares(ways, shares.get("data") or {})
    return incompatible if whole is None else OperatorConfig(config=whole)


def _home(found: Collection[str]) -> str | None:
    """Return the operator's namespace; None if it is ambiguous, since any user may create such a ConfigMap."""
    usual = [each for each in (EMBEDDED_NAMESPACE, SYSTEM_NAMESPACE) if each in found]
    places = usual or list(found)
    return places[0] if usual or len(places) == 1 else None


async def _found(reader: ClusterReader, namespace: str) -> Mapping[str, ConfigMapData]:
    """Return the published rules by namespace.

    A user who may not list all ConfigMaps gets those of the operator's default namespaces and of `namespace`.
    """
    with suppress(Forbidden):
        everywhere = await reader.list(RAW_CONFIG_MAPS, Selector(field_selector=f"metadata.name={RULES_CONFIG_MAP}"))
        return {each["metadata"]["namespace"]: each.get("data") or {} for each in everywhere.items}
    found: dict[str, ConfigMapData] = {}
    for place in (SYSTEM_NAMESPACE, EMBEDDED_NAMESPACE, namespace):
        with suppress(Forbidden, NotFound):
            found[place] = (await reader.get(RAW_CONFIG_MAPS, Key(place, RULES_CONFIG_MAP))).get("data") or {}
    return found


def _changed_settings(ways: PublishedConfig) -> Iterator[str]:
    """Yield the settings that differ from the defaults."""
    rules, usual = ways.rules, PublishedConfig()
    if ways.policy != usual.policy:
        yield f"the policy {ways.policy}"
    if rules.is_fair_share:
        yield "fair shares of namespaces"
    if not rules.is_preemption_enabled:
        yield "no preemption"
    if rules.starvation_seconds != usual.rules.starvation_seconds:
        yield f"--aged {rules.starvation_seconds:g}"
    if rules.idle_seconds != usual.rules.idle_seconds:
        yield f"--idle {rules.idle_seconds:g}"
    if rules.cool_down_seconds != usual.rules.cool_down_seconds:
        yield f"--cool-down {rules.cool_down_seconds:g}"
