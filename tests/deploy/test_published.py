"""Who may read by what an operator decides, on a cluster with the roles of deploy/."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tarragon.cli.explain.operator_config import Published, ways_of
from tarragon.client.http.client import Http
from tarragon.client.http.connection import kubeconfig
from tarragon.scheduling.api.rules import Queue
from tests.deploy.stage import Stage

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]


@asynccontextmanager
async def somebody(stage: Stage, user: str) -> AsyncIterator[Http]:
    server = kubeconfig({}, path=stage.plane.kubeconfig).server
    async with Http(replace(server, headers=(("Impersonate-User", user),)), random.Random(1)) as http:
        yield http


async def until_said(http: Http, stage: Stage, weight: float, *, fair: bool) -> Published:
    """Both: they are written one after the other."""
    wanted = {"default": Queue(weight=weight)}, fair
    async with stage.patience():
        while True:
            found = await ways_of(http, "default")
            if (found.ways.rules.queues, found.ways.rules.is_fair) == wanted:
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
        mine = await ways_of(http, "default")
    async with somebody(stage, "viewer-of-all") as http:
        await until_said(http, stage, 2, fair=True)
        file.write_text("fair: false\nnamespaces: {default: {weight: 3}}")
        await until_said(http, stage, 3, fair=False)

    assert (whole.ways.policy, whole.ways.rules.aged) == ("fifo", 90)
    assert mine.ways == replace(whole.ways, rules=replace(whole.ways.rules, queues={}))
    assert (mine.hides_shares, mine.assumed) == (True, "")
