"""Whose word on how the operator decides counts, where several have said something."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tarragon.base.clock import SystemClock
from tarragon.cli.explain.operator_config import ways_of
from tarragon.cli.targets.crds import install_here, install_without_operator
from tarragon.client.port import Cluster
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.daemon import Launch, ensure_running, stop
from tarragon.operator.scheduler.config.published import Publishing
from tarragon.plan.config.published import LOCAL, SHARES, SYSTEM, Ways
from tarragon.scheduling.api.rules import Queue, Rules
from tests.lifecycle.background import CLOCK, a_home, client
from tests.operator.stage import Stage, a_stage


async def says(stage: Stage, namespace: str, ways: Ways) -> None:
    if f"namespaces//{namespace}" not in stage.world.objects and namespace not in {"default", LOCAL}:
        await stage.world.client.create(NAMESPACES, {"metadata": {"name": namespace}})
    await Publishing(stage.world.client, SystemClock(), namespace).tell(ways)


async def test_of_the_usual_namespaces_each_counts_before_all_others(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await says(stage, "a", Ways(policy="backfill"))
        await says(stage, SYSTEM, Ways(policy="fifo"))

        assert (await ways_of(stage.world.client, "a")).ways == Ways(policy="fifo")


async def test_of_several_other_namespaces_none_is_believed(tmp_path: Path) -> None:
    """The operator is in one; in the other somebody made a ConfigMap of that name, or left it behind."""
    async with a_stage(tmp_path) as stage:
        await says(stage, "operators", Ways(policy="fifo"))
        alone = await ways_of(stage.world.client, "default")
        await says(stage, "a", Ways(policy="backfill"))
        found = await ways_of(stage.world.client, "default")

    words = "there are ConfigMaps tarragon-rules in a and operators, and the operator's is not known"
    assert (alone.ways, alone.assumed) == (Ways(policy="fifo"), "")
    assert (found.ways, found.assumed) == (Ways(), words)


async def test_shares_that_are_gone_are_not_told_as_forbidden(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await says(stage, LOCAL, Ways(policy="fifo", rules=Rules(queues={"default": Queue(weight=2)})))
        await stage.world.client.delete(CONFIG_MAPS, Key(LOCAL, SHARES))
        found = await ways_of(stage.world.client, "default")

    assert (found.ways, found.hides_shares) == (Ways(), False)
    assert found.assumed == "the ConfigMap tarragon-shares in kube-public is missing"


async def test_what_the_embedded_operator_has_said_does_not_stay_for_another_one(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await install_here(stage.world.client)
        await says(stage, LOCAL, Ways(policy="fifo"))
        await install_without_operator(stage.world.client)
        await says(stage, "default", Ways(policy="backfill"))

        assert (await ways_of(stage.world.client, "default")).ways == Ways(policy="backfill")


async def test_up_without_an_operator_says_nothing_of_the_one_before(tmp_path: Path) -> None:
    async def until_said(cluster: Cluster) -> None:
        while (await ways_of(cluster, "default")).ways != Ways(policy="fifo"):
            await CLOCK.sleep(0.05)

    def up(*words: str) -> Launch:
        command = (sys.executable, "-m", "tarragon", "up", "--background", *words)
        return Launch(command=command, environment=os.environ, patience=60)

    async with a_home(tmp_path) as home:
        async with client(home, await ensure_running(home, CLOCK, up("--policy", "fifo"))) as cluster:
            await until_said(cluster)
        await stop(home, CLOCK)
        async with client(home, await ensure_running(home, CLOCK, up("--without-operator"))) as cluster:
            found = await ways_of(cluster, "default")

    assert found.assumed == "it has published none that you may read; older versions publish none"
