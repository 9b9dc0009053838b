"""Why a job waits, told to whoever has the role `view` in one namespace of the embedded cluster."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.clock import SystemClock
from tarragon.cli.explain.queue_status import standing_of
from tarragon.cli.jobview.jobs import find
from tarragon.cli.targets.crds import install_here
from tarragon.client.errors import Forbidden
from tarragon.client.http.client import Http
from tarragon.client.http.transport import Server
from tarragon.kube.core import SERVICE_ACCOUNTS
from tarragon.kube.meta import Key
from tarragon.localcluster.auth.authorizers import Authorization
from tarragon.operator.scheduler.config.published import Publishing
from tarragon.plan.config.published import LOCAL, Ways
from tarragon.scheduling.api.rules import Queue, Rules
from tests.access.both import BINDINGS, CLUSTER_ROLES, binding
from tests.access.test_entrance import opened
from tests.operator.stage import TFJOBS, group, job

Json = dict[str, Any]
USERS = Path(__file__).parent.parent.parent / "deploy" / "users.yaml"


async def test_the_role_view_is_enough_and_what_it_hides_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", Authorization.RBAC) as door:
        client = door.cluster.client
        await install_here(client)
        ways = Ways(policy="fifo", rules=Rules(queues={"default": Queue(weight=2)}))
        await Publishing(client, SystemClock(), LOCAL).tell(ways)
        [view] = [each for each in yaml.safe_load_all(USERS.read_text()) if each["metadata"]["name"] == "tarragon-view"]
        await client.create(CLUSTER_ROLES, view)
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})
        robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        await client.create(BINDINGS, binding("view", "view", robot, namespace="default"))
        for second, name in enumerate(("first", "second")):
            await client.create(TFJOBS, job(name, Worker=group(1)))
            wait = {"code": "InsufficientResources", "message": "it is full"}
            admission = {"queued": f"2026-01-01T00:00:0{second}Z", "wait": wait}
            status = {"tarragon": {"admission": admission}}
            await client.patch(TFJOBS, Key("default", name), {"status": status}, subresource="status")
        server = Server(url=door.cluster.url, ca_data=door.home.ca.read_bytes(), token=await door.token("robot"))
        async with Http(server, random.Random(1)) as http, asyncio.timeout(60):
            while True:
                try:  # `view` is made of its parts in a moment
                    second_job = await find(http, "second", "default")
                except Forbidden:
                    continue
                break
            told = await standing_of(http, second_job, SystemClock())

    assert told.place == ", at position 2 of 2 that you may see"
    assert [each.key.name for each in told.ahead] == ["first"]
    assert (told.unseen, told.short, told.starts) == (["jobs", "nodes", "pods", "shares"], None, None)
    assert told.ways is not None
    assert (told.ways.ways, told.ways.assumed) == (Ways(policy="fifo"), "")
