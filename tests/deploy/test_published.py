"""Who may read by what an operator decides, on a cluster with the roles of deploy/."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tarragon.cli.explain.operator_config import OperatorConfig, read_published_config
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.scheduling.api.rules import QueueRules
from tests.deploy.stage import Stage

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]


@asynccontextmanager
async def somebody(stage: Stage, user: str) -> AsyncIterator[HttpClient]:
    server = load_kubeconfig({}, path=stage.plane.kubeconfig).rest_config
    async with HttpClient(replace(server, headers=(("Impersonate-User", user),)), random.Random(1)) as http:
        yield http


async def until_said(http: HttpClient, stage: Stage, weight: float, *, fair: bool) -> OperatorConfig:
    """Both: they are written one after the other."""
    wanted = {"default": QueueRules(weight=weight)}, fair
    async with stage.patience():
        while True:
            found = await read_published_config(http, "default")
            if (found.config.rules.queues, found.config.rules.is_fair_share) == wanted:
                return found
            await stage.clock.sleep(0.1)


async def test_whoever_is_let_in_reads_the_policy_and_who_views_all_the_shares(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("fair: true\nnamespaces: {default: {weight: 2}}")
    operator = await stage.operator(await stage.token(), "--policy", "fifo", "--aged", "90", "--queues", str(file))
    await stage.until(lambda: operator.is_leading)
    await stage.kubectl("create", "rolebinding", "of-ways", "--clusterrole=view", "--user=viewer-of-ways")
    await stage.kubectl("create", "clusterrolebinding", "of-all-ways", "--clusterrole=view", "--user=viewer-of-all")

    whole = await until_said(stage.http, stage, 2, fair=True)
    async with somebody(stage, "viewer-of-ways") as http:
        mine = await read_published_config(http, "default")
    async with somebody(stage, "viewer-of-all") as http:
        await until_said(http, stage, 2, fair=True)
        file.write_text("fair: false\nnamespaces: {default: {weight: 3}}")
        await until_said(http, stage, 3, fair=False)

    assert (whole.config.policy, whole.config.rules.starvation_seconds) == ("fifo", 90)
    assert mine.config == replace(whole.config, rules=replace(whole.config.rules, queues={}))
    assert (mine.hides_shares, mine.assumed_because) == (True, "")
