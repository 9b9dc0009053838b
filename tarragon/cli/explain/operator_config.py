"""Reads the scheduling policy and rules that a cluster's operator has published in ConfigMaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tarragon.cli.jobview.target import Looker
from tarragon.cli.output.words import listed
from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.port import Selection
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Json, Key
from tarragon.plan.config.published import LOCAL, RULES, SHARES, SYSTEM, Data, Ways, understood, with_shares

WHOLE = CONFIG_MAPS.reading(dict)
ASSUMED = "assuming the default policy and rules of an operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The operator's scheduling configuration. `assumed` says why it is only the default; empty if it was published."""

    ways: Ways = field(default_factory=Ways)
    assumed: str = ""
    hides_shares: bool = False
    """Namespaces have weights or quotas that this user may not read."""

    def lines(self) -> Iterator[str]:
        """Yield the settings that differ from the defaults, or why the defaults are assumed."""
        if self.assumed:
            yield f"{ASSUMED}: {self.assumed}"
            return
        changed = list(_changed_settings(self.ways))
        if changed:
            yield f"the operator is configured with {listed(changed)}"

    def fields(self) -> Json:
        rules = self.ways.rules
        return {
            "policy": self.ways.policy,
            "aged": rules.aged,
            "idle": rules.idle,
            "coolDown": rules.cool_down,
            "fair": rules.is_fair,
            "preempt": rules.preempts,
            "assumed": bool(self.assumed),
        }


async def ways_of(looker: Looker, namespace: str) -> Published:
    """Find the published configuration of the operator that schedules the jobs in `namespace`."""
    found = await _found(looker, namespace)
    if not found:
        return Published(assumed="it has published none that you may read; older versions publish none")
    home = _home(found)
    if home is None:
        places = listed(sorted(found))
        return Published(assumed=f"there are ConfigMaps {RULES} in {places}, and the operator's is not known")
    incompatible = Published(assumed=f"the one published in {home} is from an incompatible version")
    parsed = understood(found[home])
    if parsed is None:
        return incompatible
    ways, parts = parsed
    if not parts:
        return Published(ways=ways)
    try:
        shares = await looker.get(WHOLE, Key(home, SHARES))
    except Forbidden:
        return Published(ways=ways, hides_shares=True)
    except NotFound:
        return Published(assumed=f"the ConfigMap {SHARES} in {home} is missing")
    whole = with_shares(ways, shares.get("data") or {})
    return incompatible if whole is None else Published(ways=whole)


def _home(found: Collection[str]) -> str | None:
    """Return the operator's namespace; None if it is ambiguous, since any user may create such a ConfigMap."""
    usual = [each for each in (LOCAL, SYSTEM) if each in found]
    places = usual or list(found)
    return places[0] if usual or len(places) == 1 else None


async def _found(looker: Looker, namespace: str) -> Mapping[str, Data]:
    """Return the published rules by namespace.

    A user who may not list all ConfigMaps gets those of the operator's default namespaces and of `namespace`.
    """
    with suppress(Forbidden):
        everywhere = await looker.list(WHOLE, Selection(fields=f"metadata.name={RULES}"))
        return {each["metadata"]["namespace"]: each.get("data") or {} for each in everywhere.items}
    found: dict[str, Data] = {}
    for place in (SYSTEM, LOCAL, namespace):
        with suppress(Forbidden, NotFound):
            found[place] = (await looker.get(WHOLE, Key(place, RULES))).get("data") or {}
    return found


def _changed_settings(ways: Ways) -> Iterator[str]:
    """Yield the settings that differ from the defaults."""
    rules, usual = ways.rules, Ways()
    if ways.policy != usual.policy:
        yield f"the policy {ways.policy}"
    if rules.is_fair:
        yield "fair shares of namespaces"
    if not rules.preempts:
        yield "no preemption"
    if rules.aged != usual.rules.aged:
        yield f"--aged {rules.aged:g}"
    if rules.idle != usual.rules.idle:
        yield f"--idle {rules.idle:g}"
    if rules.cool_down != usual.rules.cool_down:
        yield f"--cool-down {rules.cool_down:g}"
