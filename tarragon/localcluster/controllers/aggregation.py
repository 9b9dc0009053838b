"""ClusterRoles that are made of others: their rules are those of all roles that their selectors choose."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound
from tarragon.client.port import Cluster
from tarragon.kube.meta import Key, ObjectMeta, Resource, Struct
from tarragon.kube.selectors import from_match_labels
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.workqueue import Worklist

Json = dict[str, Any]


class Aggregation(Struct, frozen=True):
    cluster_role_selectors: list[Json] = []


class ClusterRole(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    aggregation_rule: Aggregation | None = None
    rules: list[Json] | None = None


CLUSTER_ROLES = Resource(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterroles",
    kind="ClusterRole",
    model=ClusterRole,
    namespaced=False,
)


class AggregationController:
    """Looks at each role that is made of others whenever any role changes: there are few of them."""

    def __init__(self, cluster: Cluster, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._roles = logged_cache(cluster, CLUSTER_ROLES, clock, jitter)
        self._worklist: Worklist[Key] = Worklist(clock, jitter)
        self._roles.subscribe(self._follow)

    async def run(self) -> None:
        """For ever, until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._roles.run())
            await self._roles.synced()
            tasks.create_task(self._worklist.run(self._reconcile))

    def _follow(self, _key: Key, _old: ClusterRole | None, _new: ClusterRole | None) -> None:
        for key, role in self._roles.objects.items():
            if role.aggregation_rule is not None:
                self._worklist.add(key)

    async def _reconcile(self, key: Key) -> None:
        role = self._roles.objects.get(key)
        if role is None or role.aggregation_rule is None or role.metadata.is_ending:
            return
        rules = aggregated(role, self._roles.objects.values())
        if rules == (role.rules or []):
            return
        version = {"resourceVersion": role.metadata.resource_version, "uid": role.metadata.uid}
        with suppress(NotFound):
            await self._cluster.patch(CLUSTER_ROLES, key, {"metadata": version, "rules": rules})


def aggregated(role: ClusterRole, others: Iterable[ClusterRole]) -> list[Json]:
    """Selector by selector, role by role in the order of their names, each rule once."""
    by_name = sorted(others, key=lambda other: other.metadata.name)
    rules: list[Json] = []
    for selector in role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else ():
        chooses = from_match_labels(selector)
        for other in by_name:
            if other.metadata.name != role.metadata.name and chooses(other.metadata.labels):
                rules += [rule for rule in other.rules or () if rule not in rules]
    return rules
