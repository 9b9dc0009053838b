"""Everything at once, for a long time: the servers, the operators and the calls between them fail at random."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.real.proxies import Trouble, troubled
from tests.real.scene import Json, OperatorProcess, Scene, a_scene, tfjob
from tools.controlplane import API_SERVER, ETCD, ControlPlane

FAULTS = int(os.environ.get("TARRAGON_SOAK_FAULTS", "60"))
SEED = int(os.environ.get("TARRAGON_SOAK_SEED", "1"))
QUICK_LEASE = ("--lease-duration", "6", "--renew-deadline", "4", "--retry-period", "1")

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(3600)]


class Chaos:
    """Two operators by way of a bad line, and somebody who breaks something every few seconds."""

    def __init__(self, scene: Scene, dice: random.Random, config: Path) -> None:
        self.scene = scene
        self.dice = dice
        self.config = config
        self.told: dict[str, int] = {}
        self._faults: list[Callable[[], Awaitable[None]]] = [
            self.the_api_server_is_killed,
            self.etcd_is_killed,
            self.an_operator_is_killed,
            self.an_operator_freezes,
            self.an_operator_is_asked_to_end,
            self.history_is_compacted,
        ]

    async def strike(self) -> None:
        fault = self.dice.choice(self._faults)
        self.told[fault.__name__] = self.told.get(fault.__name__, 0) + 1
        await fault()
        while len(self.alive()) < 2:
            await self.scene.operator(self.config, *QUICK_LEASE)

    def alive(self) -> list[OperatorProcess]:
        return [one for one in self.scene.operators if one.is_going]

    async def the_api_server_is_killed(self) -> None:
        self.scene.plane.kill(API_SERVER)
        await self.scene.clock.sleep(self.dice.random() * 3)
        self.scene.plane.restart(API_SERVER)

    async def etcd_is_killed(self) -> None:
        self.scene.plane.kill(ETCD)
        await self.scene.clock.sleep(self.dice.random() * 3)
        self.scene.plane.restart(ETCD)

    async def an_operator_is_killed(self) -> None:
        self.dice.choice(self.alive()).send(signal.SIGKILL)

    async def an_operator_is_asked_to_end(self) -> None:
        self.dice.choice(self.alive()).send(signal.SIGTERM)

    async def an_operator_freezes(self) -> None:
        frozen = self.dice.choice(self.alive())
        frozen.send(signal.SIGSTOP)
        await self.scene.clock.sleep(self.dice.random() * 10)
        frozen.send(signal.SIGCONT)

    async def history_is_compacted(self) -> None:
        self.scene.plane.compact()


async def test_whatever_breaks_every_job_reaches_its_end_and_no_pod_is_made_twice(
    own_control_plane: ControlPlane,
) -> None:
    dice = random.Random(SEED)
    trouble = Trouble(dice=random.Random(SEED))
    async with a_scene(own_control_plane, nodes=8) as scene, AsyncExitStack() as stack:
        config = await stack.enter_async_context(troubled(own_control_plane, trouble))
        chaos = Chaos(scene, dice, config)
        for _ in range(2):
            await scene.operator(config, *QUICK_LEASE)
        trouble.share = 0.1
        submitted: list[str] = []

        def manifest(name: str) -> Json:
            return tfjob(name, workers=dice.randint(1, 4), seconds=dice.choice([0.5, 5, 20]))

        for number in range(FAULTS):
            names = [f"job-{number}-{each}" for each in range(dice.randint(0, 5))]
            submitted += names
            adding = asyncio.create_task(scene.submit(names, manifest))
            await scene.clock.sleep(dice.random() * 4)
            await chaos.strike()
            await adding

        trouble.share = 0.0
        await scene.until_states(submitted, "Succeeded", patience=300)
        made = scene.made()
        assert {pod: times for pod, times in made.items() if times > 1} == {}
        assert {f"{name}-worker-0" for name in submitted} <= made.keys()
