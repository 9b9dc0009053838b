"""By which policy and rules the operator of a cluster decides, as it has published them."""

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
ASSUMED = "assumed: the policy and the rules that an operator has by default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """`assumed` says why its ways are only the defaults; empty where the operator has said them."""

    ways: Ways = field(default_factory=Ways)
    assumed: str = ""
    hides_shares: bool = False
    """Namespaces have weights or quotas, which this user may not read."""

    def lines(self) -> Iterator[str]:
        """Nothing of an operator that has said the defaults."""
        if self.assumed:
            yield f"{ASSUMED}: {self.assumed}"
            return
        told = list(_told(self.ways))
        if told:
            yield f"the operator decides by {listed(told)}"

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
    """Of the operator that places the jobs of that namespace, and of all others."""
    found = await _found(looker, namespace)
    if not found:
        return Published(assumed="it has published none that you may read, as older ones do not")
    home = _home(found)
    if home is None:
        places = listed(sorted(found))
        return Published(assumed=f"ConfigMaps {RULES} are in {places}, and which one is the operator's is not known")
    unknown = Published(assumed=f"what it has published in {home} is of another version than this command")
    told = understood(found[home])
    if told is None:
        return unknown
    ways, parts = told
    if not parts:
        return Published(ways=ways)
    try:
        shares = await looker.get(WHOLE, Key(home, SHARES))
    except Forbidden:
        return Published(ways=ways, hides_shares=True)
    except NotFound:
        return Published(assumed=f"of what it has published in {home} the ConfigMap {SHARES} is gone")
    whole = with_shares(ways, shares.get("data") or {})
    return unknown if whole is None else Published(ways=whole)


def _home(found: Collection[str]) -> str | None:
    """None where it can't be told: anybody may make such a ConfigMap in a namespace of their own."""
    usual = [each for each in (LOCAL, SYSTEM) if each in found]
    places = usual or list(found)
    return places[0] if usual or len(places) == 1 else None


async def _found(looker: Looker, namespace: str) -> Mapping[str, Data]:
    """By namespace. Who may not look everywhere looks where an operator is if nobody has moved it, and at home."""
    with suppress(Forbidden):
        everywhere = await looker.list(WHOLE, Selection(fields=f"metadata.name={RULES}"))
        return {each["metadata"]["namespace"]: each.get("data") or {} for each in everywhere.items}
    found: dict[str, Data] = {}
    for place in (SYSTEM, LOCAL, namespace):
        with suppress(Forbidden, NotFound):
            found[place] = (await looker.get(WHOLE, Key(place, RULES))).get("data") or {}
    return found


def _told(ways: Ways) -> Iterator[str]:
    """What is not as it is by default."""
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
