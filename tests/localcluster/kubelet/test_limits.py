from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tarragon.localcluster.kubelet.resources.eviction_manager import CHECK_SECONDS, EvictionManager, disk_usage
from tarragon.localcluster.kubelet.resources.limits import (
    PodLimits,
    UsedResources,
    eviction,
    memory_warnings,
    pod_limits,
)
from tarragon.localcluster.kubelet.resources.usage_reading import UsageReading
from tests.localcluster.kubelet.builders import container_json, pod
from tests.localcluster.kubelet.world import Json, World

MEBIBYTE = 2**20


def limited(name: str = "main", **limits: str) -> Json:
    spelt = {key.replace("_", "-"): value for key, value in limits.items()}
    return container_json(name=name, resources={"limits": spelt})


def reason_and_message(found: PodFailure | None) -> tuple[str, str]:
    assert found
    return found.reason, found.message


def test_a_pod_without_limits_is_not_checked() -> None:
    assert not pod_limits(pod("p", container_json(), volumes=[{"name": "scratch", "emptyDir": {}}]))


def test_an_empty_dir_over_its_size_limit_evicts_the_pod() -> None:
    scratch = pod("p", volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}])
    allowed = pod_limits(scratch)

    assert eviction(scratch, allowed, UsedResources(empty_dirs={"scratch": MEBIBYTE})) is None
    found = eviction(scratch, allowed, UsedResources(empty_dirs={"scratch": MEBIBYTE + 1}))
    assert reason_and_message(found) == ("Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ')


def test_the_pod_limit_is_the_sum_of_its_container_limits() -> None:
    two = pod("p", limited("a", ephemeral_storage="1Mi"), limited("b", ephemeral_storage="2Mi"))
    used = UsedResources(logs={"a": MEBIBYTE // 2, "b": MEBIBYTE // 2}, rest=2 * MEBIBYTE)

    assert eviction(two, pod_limits(two), used) is None
    over = UsedResources(logs=used.logs, rest=2 * MEBIBYTE + 1)
    words = f"Pod ephemeral local storage usage exceeds the total limit of containers {3 * MEBIBYTE}. "
    assert reason_and_message(eviction(two, pod_limits(two), over)) == ("Evicted", words)


def test_a_pod_is_unlimited_if_one_of_its_containers_is() -> None:
    half = pod("p", limited("a", ephemeral_storage="1Mi"), container_json(name="b"))

    assert eviction(half, pod_limits(half), UsedResources(rest=10 * MEBIBYTE, logs={"a": 1, "b": 1})) is None
    found = eviction(half, pod_limits(half), UsedResources(logs={"a": MEBIBYTE + 1}))
    assert reason_and_message(found) == ("Evicted", 'Container a exceeded its local ephemeral storage limit "1Mi". ')


def test_too_much_memory_is_reported_and_the_container_keeps_running() -> None:
    warnings = memory_warnings(
        PodLimits(memory={"main": "1Mi", "other": "1Gi"}), UsedResources(memory={"main": 3 * MEBIBYTE, "other": 7})
    )

    assert list(warnings) == ["main"]
    assert warnings["main"].startswith("Container main uses 3Mi, more than its limit of 1Mi: a cluster would kill it")


class Worker:
    """A pod without processes that records what is done to it."""

    def __init__(self, wanted: Pod) -> None:
        self.pod = wanted
        self.verdicts: list[PodFailure] = []

    def live_runs(self) -> Mapping[str, Path]:
        return {} if self.verdicts else {each.name: Path("/runs") / each.name for each in self.pod.spec.containers}

    def end(self, verdict: PodFailure) -> None:
        self.verdicts.append(verdict)


class Scene:
    """One node with a manual clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.folder = NodeFolder(folder)
        self.events: list[tuple[str, str]] = []
        self.looks = 0
        self.overuse = EvictionManager(self.folder, self.clock, self._tell, self._read)

    def _tell(self, _: Pod, __: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def _read(self, runs: Mapping[str, Path]) -> Mapping[str, UsageReading]:
        self.looks += 1
        return {key: UsageReading(cpu=0, memory=5 * MEBIBYTE) for key in runs}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_too_much_memory_is_reported_once_per_run(scene: Scene) -> None:
    scene.overuse.add(Worker(pod("p", limited(memory="1Mi"))))

    await scene.overuse.check()
    await scene.overuse.check()

    assert scene.looks == 2
    assert [reason for reason, _ in scene.events] == ["MemoryLimitExceeded"]


async def test_a_removed_pod_is_not_checked(scene: Scene) -> None:
    worker = Worker(pod("p", limited(memory="1Mi")))
    scene.overuse.add(worker)
    scene.overuse.remove(worker)

    await scene.overuse.check()

    assert (scene.looks, scene.events) == (0, [])


async def test_nothing_is_checked_while_no_pod_has_limits(scene: Scene) -> None:
    running = asyncio.create_task(scene.overuse.run())
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - lets the task run; no time passes
        scene.clock.advance(CHECK_SECONDS)

    assert scene.clock.next_due() is None
    running.cancel()


def test_the_size_of_a_folder_is_its_usage_on_disk(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * MEBIBYTE)
    (tmp_path / "link").symlink_to("/usr")

    assert MEBIBYTE <= disk_usage(tmp_path) < 2 * MEBIBYTE
    assert disk_usage(tmp_path / "none-such") == 0


async def test_a_pod_that_fills_its_scratch_volume_is_evicted(world: World) -> None:
    """With a real file, real processes and the message in the status."""
    kubelet = world.start_kubelet()
    scratch: dict[str, Any] = {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}
    mounted = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    fills = "head -c 3000000 /dev/zero > /scratch/file; echo full; sleep 1000"
    await world.run(fills, container=mounted, volumes=[scratch], restartPolicy="Never", terminationGracePeriodSeconds=1)
    await world.phase("Running")

    async with asyncio.timeout(60):
        while (evicted := await world.get())["status"]["phase"] != "Failed":
            await kubelet.eviction_manager.check()
            await asyncio.sleep(0.01)  # noqa: TID251 - a real process does not signal that its file has grown

    assert evicted["status"]["reason"] == "Evicted"
    assert evicted["status"]["message"] == 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
    assert world.processes() == set()
