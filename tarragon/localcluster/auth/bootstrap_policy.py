"""Sees at each start that the default roles and bindings are there, whole: what was taken from them comes back.

What somebody has added to them stays, and one whose annotation `autoupdate` is "false" is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from tarragon.client.errors import NotFound
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import Target, WriteOptions
from tarragon.localcluster.auth.default_roles import AUTOUPDATE, cluster_role_bindings, cluster_roles
from tarragon.localcluster.auth.roles import GROUP
from tarragon.localcluster.auth.rules import rule_of, rules_of, uncovered
from tarragon.localcluster.registry.api import Api

Json = dict[str, Any]

_BY_THE_SERVER = WriteOptions(field_manager="tarragon")


async def found_roles(api: Api) -> None:
    """All at once: they go to the disk together."""
    roles = (_see_to(api, "clusterroles", role) for role in cluster_roles())
    bindings = (_see_to(api, "clusterrolebindings", binding) for binding in cluster_role_bindings())
    await asyncio.gather(*roles, *bindings)


async def _see_to(api: Api, plural: str, wanted: Json) -> None:
    target = api.target((GROUP, "v1", plural), name=wanted["metadata"]["name"])
    try:
        found: Json = decode(api.get(target), dict)
    except NotFound:
        await api.create(Target(target.served), wanted, _BY_THE_SERVER)
        return
    if (found["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return
    mended = _mended(found, wanted)
    if mended is None:
        return
    if mended.get("roleRef") != found.get("roleRef"):  # it can't be changed
        await api.delete(target, writing=_BY_THE_SERVER)
        await api.create(Target(target.served), wanted, _BY_THE_SERVER)
    else:
        await api.update(target, mended, _BY_THE_SERVER)


def _mended(found: Json, wanted: Json) -> Json | None:
    """What is stored, with what it lacks; None when that is nothing."""
    mended = {**found, "metadata": dict(found["metadata"])}
    for part in ("labels", "annotations"):
        mended["metadata"][part] = {**(found["metadata"].get(part) or {}), **wanted["metadata"][part]}
    if "roleRef" in wanted:
        mended["roleRef"] = wanted["roleRef"]
        mended["subjects"] = _with(found.get("subjects") or [], wanted["subjects"])
    elif "aggregationRule" in wanted:
        rule = found.get("aggregationRule") or {}
        selectors = _with(rule.get("clusterRoleSelectors") or [], wanted["aggregationRule"]["clusterRoleSelectors"])
        mended["aggregationRule"] = {"clusterRoleSelectors": selectors}
    else:
        held = rules_of(found)
        known = set(held)  # mostly all is as it was: nothing has to be taken apart then
        lacks = [one for one in wanted["rules"] if rule_of(one) not in known and uncovered(held, [rule_of(one)])]
        mended["rules"] = [*(found.get("rules") or []), *lacks]
    return None if mended == found else mended


def _with(found: list[Json], wanted: Iterable[Json]) -> list[Json]:
    return [*found, *(one for one in wanted if one not in found)]
