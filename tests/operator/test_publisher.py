"""By which policy and rules an operator decides is there to be read, and stays true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, LEASES
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.scheduler.config.publisher import CHECK_SECONDS, RETRY_SECONDS, ConfigPublisher
from tarragon.operator.scheduler.config.reload import ReloadingRules
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP, PublishedConfig
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import Stage
from tests.operator.test_process import a_process, holder

Json = dict[str, Any]


def said(stage: Stage, name: str) -> Mapping[str, str]:
    return stage.world.objects.get(f"configmaps/default/{name}", {}).get("data") or {}


class WithoutConfigMaps(DelegatingClient):
    """An API that lets nobody read them."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.asked = 0

    async def get(self, resource: Any, key: Key) -> Any:
        if resource.plural == CONFIG_MAPS.plural:
            self.asked += 1
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "configmaps are forbidden"})
        return await super().get(resource, key)


async def test_an_edit_of_the_file_of_queues_is_published(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("fair: true")
    rules = ReloadingRules(file, SchedulingRules(starvation_seconds=120))
    options = OperatorOptions(seed=1, policy=POLICIES["fifo"], rules=rules, publish_namespace="default")
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())
    await stage.world.until(lambda: bool(said(stage, RULES_CONFIG_MAP)))
    first = said(stage, RULES_CONFIG_MAP)

    file.write_text("namespaces: {a: {weight: 3, quota: {cpu: 2}}}")
    await stage.world.until(lambda: said(stage, RULES_CONFIG_MAP).get("fair") == "false")

    times = {"aged": "120", "idle": "60", "coolDown": "60"}
    assert first == {"policy": "fifo", **times, "fair": "true", "preempt": "true", "shares": "0"}
    assert said(stage, SHARES_CONFIG_MAP) == {"namespaces": '{"a": {"weight": 3.0, "quota": {"cpu": "2"}}}'}
    assert said(stage, RULES_CONFIG_MAP) == {
        "policy": "fifo",
        **times,
        "fair": "false",
        "preempt": "true",
        "shares": "1",
    }


async def test_only_who_leads_says_it_and_the_next_one_says_its_own(stage: Stage) -> None:
    def options(policy: str) -> OperatorOptions:
        return OperatorOptions(seed=1, policy=POLICIES[policy], publish_namespace="default")

    await stage.world.follow(LEASES)
    async with a_process(stage, "a", options=options("fifo")) as a:
        await stage.world.until(lambda: holder(stage) == "a")
        async with a_process(stage, "b", options=options("backfill")):
            await stage.world.until(lambda: bool(said(stage, RULES_CONFIG_MAP)))
            assert said(stage, RULES_CONFIG_MAP)["policy"] == "fifo"

            await a.ends()

            await stage.world.until(lambda: said(stage, RULES_CONFIG_MAP)["policy"] == "backfill")


async def test_what_somebody_has_edited_or_deleted_is_put_right(stage: Stage) -> None:
    clock, client = FakeClock(), stage.world.client
    publishing = ConfigPublisher(client, clock, "default")
    await publishing.publish(PublishedConfig())
    await stage.world.until(lambda: bool(said(stage, RULES_CONFIG_MAP)))
    right = said(stage, RULES_CONFIG_MAP)

    await client.patch(CONFIG_MAPS, Key("default", RULES_CONFIG_MAP), {"data": {"policy": "lottery", "more": "x"}})
    await client.delete(CONFIG_MAPS, Key("default", SHARES_CONFIG_MAP))
    await stage.world.until(lambda: not said(stage, SHARES_CONFIG_MAP))
    await publishing.publish(PublishedConfig())
    assert said(stage, RULES_CONFIG_MAP)["policy"] == "lottery", "it does not ask each time"
    clock.advance(CHECK_SECONDS)
    await publishing.publish(PublishedConfig())

    await stage.world.until(lambda: said(stage, RULES_CONFIG_MAP) == right and bool(said(stage, SHARES_CONFIG_MAP)))


async def test_who_may_not_publish_says_so_once_and_goes_on(stage: Stage) -> None:
    clock, client = FakeClock(), WithoutConfigMaps(stage.world.client)
    publishing = ConfigPublisher(client, clock, "default")

    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            await publishing.publish(PublishedConfig())
            await publishing.publish(PublishedConfig())
            clock.advance(RETRY_SECONDS)

    assert client.asked == 3
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "configmaps are forbidden" in lines[0]["error"]


class Late(DelegatingClient):
    """An API on which another leader is quicker each time: between our look and our write."""

    def __init__(self, client: Client, first: ConfigPublisher) -> None:
        super().__init__(client)
        self._first = first

    async def get(self, resource: Any, key: Key) -> Any:
        try:
            return await super().get(resource, key)
        finally:
            if key.name == RULES_CONFIG_MAP:
                await self._first.publish(PublishedConfig(policy="backfill"))


@pytest.mark.parametrize("is_there", [False, True])
async def test_who_comes_too_late_warns_of_nothing_and_puts_it_right_a_minute_later(
    stage: Stage, *, is_there: bool
) -> None:
    clock, client = FakeClock(), stage.world.client
    if is_there:
        await ConfigPublisher(client, clock, "default").publish(PublishedConfig())
    publishing = ConfigPublisher(Late(client, ConfigPublisher(client, clock, "default")), clock, "default")
    with structlog.testing.capture_logs() as lines:
        await publishing.publish(PublishedConfig(policy="fifo"))
        found = await client.get(CONFIG_MAPS.with_model(dict), Key("default", RULES_CONFIG_MAP))
        clock.advance(RETRY_SECONDS)
        await publishing.publish(PublishedConfig(policy="fifo"))

    assert not lines
    assert found["data"]["policy"] == "backfill"
    await stage.world.until(lambda: said(stage, RULES_CONFIG_MAP).get("policy") == "fifo")


async def test_whoever_reads_what_all_may_read_finds_the_shares_that_it_speaks_of(stage: Stage) -> None:
    class Noting(DelegatingClient):
        async def create(self, resource: Any, body: Any) -> Any:
            made.append(body["metadata"]["name"])
            return await super().create(resource, body)

    made: list[str] = []
    await ConfigPublisher(Noting(stage.world.client), FakeClock(), "default").publish(PublishedConfig())

    assert made == [SHARES_CONFIG_MAP, RULES_CONFIG_MAP]
