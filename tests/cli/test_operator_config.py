"""Whose word on how the operator decides counts, where several have said something."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tarragon.base.clock import SystemClock
from tarragon.cli.explain.operator_config import read_published_config
from tarragon.cli.targets.crds import prepare_embedded, prepare_without_operator
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.background import Launch, ensure_running, stop
from tarragon.operator.scheduler.config.publisher import ConfigPublisher
from tarragon.plan.config.published import EMBEDDED_NAMESPACE, SHARES_CONFIG_MAP, SYSTEM_NAMESPACE, PublishedConfig
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.lifecycle.background import CLOCK, a_home, client
from tests.operator.stage import Stage, a_stage


async def says(stage: Stage, namespace: str, ways: PublishedConfig) -> None:
    if f"namespaces//{namespace}" not in stage.world.objects and namespace not in {"default", EMBEDDED_NAMESPACE}:
        await stage.world.client.create(NAMESPACES, {"metadata": {"name": namespace}})
    await ConfigPublisher(stage.world.client, SystemClock(), namespace).publish(ways)


async def test_of_the_usual_namespaces_each_counts_before_all_others(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await says(stage, "a", PublishedConfig(policy="backfill"))
        await says(stage, SYSTEM_NAMESPACE, PublishedConfig(policy="fifo"))

        assert (await read_published_config(stage.world.client, "a")).config == PublishedConfig(policy="fifo")


async def test_of_several_other_namespaces_none_is_believed(tmp_path: Path) -> None:
    """The operator is in one; in the other somebody made a ConfigMap of that name, or left it behind."""
    async with a_stage(tmp_path) as stage:
        await says(stage, "operators", PublishedConfig(policy="fifo"))
        alone = await read_published_config(stage.world.client, "default")
        await says(stage, "a", PublishedConfig(policy="backfill"))
        found = await read_published_config(stage.world.client, "default")

    words = "there are ConfigMaps tarragon-rules in a and operators, and the operator's is not known"
    assert (alone.config, alone.assumed_because) == (PublishedConfig(policy="fifo"), "")
    assert (found.config, found.assumed_because) == (PublishedConfig(), words)


async def test_shares_that_are_gone_are_not_told_as_forbidden(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await says(
            stage,
            EMBEDDED_NAMESPACE,
            PublishedConfig(policy="fifo", rules=SchedulingRules(queues={"default": QueueRules(weight=2)})),
        )
        await stage.world.client.delete(CONFIG_MAPS, Key(EMBEDDED_NAMESPACE, SHARES_CONFIG_MAP))
        found = await read_published_config(stage.world.client, "default")

    assert (found.config, found.hides_shares) == (PublishedConfig(), False)
    assert found.assumed_because == "the ConfigMap tarragon-shares in kube-public is missing"


async def test_what_the_embedded_operator_has_said_does_not_stay_for_another_one(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await prepare_embedded(stage.world.client)
        await says(stage, EMBEDDED_NAMESPACE, PublishedConfig(policy="fifo"))
        await prepare_without_operator(stage.world.client)
        await says(stage, "default", PublishedConfig(policy="backfill"))

        assert (await read_published_config(stage.world.client, "default")).config == PublishedConfig(policy="backfill")


async def test_up_without_an_operator_says_nothing_of_the_one_before(tmp_path: Path) -> None:
    async def until_said(cluster: Client) -> None:
        while (await read_published_config(cluster, "default")).config != PublishedConfig(policy="fifo"):
            await CLOCK.sleep(0.05)

    def up(*words: str) -> Launch:
        command = (sys.executable, "-m", "tarragon", "up", "--stop-when-idle", *words)
        return Launch(command=command, environment=os.environ, start_timeout=60)

    async with a_home(tmp_path) as home:
        async with client(home, await ensure_running(home, CLOCK, up("--policy", "fifo"))) as cluster:
            await until_said(cluster)
        await stop(home, CLOCK)
        async with client(home, await ensure_running(home, CLOCK, up("--without-operator"))) as cluster:
            found = await read_published_config(cluster, "default")

    assert found.assumed_because == "it has published none that you may read; older versions publish none"
