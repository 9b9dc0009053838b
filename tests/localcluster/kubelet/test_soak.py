"""Hundreds of random deaths of programs, shims, the kubelet and pods."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tarragon.client.errors import NotFound
from tarragon.localcluster.kubelet.network.ports import allocated_ports
from tarragon.localcluster.kubelet.shim.shim_client import ShimState, state_of
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import World, state

PODS = 8


class Fate:
    """Causes a random event at every step; files in `begun` count how often each pod ran."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.names: list[str] = []
        self.made = 0

    async def step(self) -> None:
        while len(self.names) < PODS:
            await self.create()
        deed: Callable[[], Awaitable[None]] = self.dice.choice(
            [self.create, self.kill_program, self.kill_program, self.kill_shim, self.restart_kubelet, self.delete]
        )
        await deed()

    async def create(self) -> None:
        name = f"p{self.made}"
        self.made += 1
        begun, pause = self.world.folder / f"begun-{name}", self.dice.choice(["0", "0.05", "0.3", "1000"])
        script = f"echo begun >> {begun}; setsid sleep 1000 & sleep {pause}; exit {self.dice.randrange(3)}"
        env = [{"name": "PEER", "value": f"{name}.default.svc:2222"}]
        await self.world.run(
            script, name, restartPolicy="Never", container={"env": env}, terminationGracePeriodSeconds=1
        )
        self.names.append(name)

    async def kill_program(self) -> None:
        if (run_state := await self._some()) and run_state.main:
            _kill(run_state.main.pid)

    async def kill_shim(self) -> None:
        if (run_state := await self._some()) and run_state.shim:
            _kill(run_state.shim.pid)

    async def restart_kubelet(self) -> None:
        await self.world.stop_kubelet()
        self.world.start_kubelet()

    async def delete(self) -> None:
        name = self.names.pop(self.dice.randrange(len(self.names)))
        with suppress(NotFound):
            await self.world.delete(name, self.dice.choice([None, 0, 1]))

    async def _some(self) -> ShimState | None:
        """The state of a random pod's live container, if there is one."""
        name = self.dice.choice(self.names)
        uid = (await self.world.get(name))["metadata"]["uid"]
        run_state = state_of(self.world.node / "pods" / uid / "runs/main/0")
        return run_state if run_state and not run_state.has_ended else None


def folders_left(world: World) -> list[str]:
    return [path.name for path in (world.node / "pods").iterdir()]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
async def test_random_deaths_neither_repeat_a_run_nor_leave_processes(world: World, seed: int) -> None:
    fate = Fate(world, random.Random(seed))
    world.start_kubelet()

    for _ in range(150):
        await fate.step()
    for name in fate.names:
        with suppress(NotFound):
            if (await world.get(name))["status"].get("phase") in {None, "Pending", "Running"}:
                await world.until(lambda pod: pod["status"].get("phase") != "Pending", name)
                run_state = state_of(world.node / "pods" / (await world.get(name))["metadata"]["uid"] / "runs/main/0")
                if run_state and run_state.main and not run_state.has_ended:
                    _kill(run_state.main.pid)
        pod = await world.until(lambda pod: pod["status"].get("phase") in {"Succeeded", "Failed"}, name)
        assert "exitCode" in state(pod)["terminated"]

    for name in fate.names:
        await world.delete(name)
    await eventually(lambda: world.processes() == set())
    await eventually(lambda: folders_left(world) == [])
    await eventually(lambda: allocated_ports(world.folder / "node") == {})
    for begun in world.folder.glob("begun-*"):
        assert begun.read_text() in {"", "begun\n"}  # a pod killed early has at most created the file
