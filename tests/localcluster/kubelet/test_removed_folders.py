"""Pods whose folder is removed under a running kubelet."""

from __future__ import annotations

import shutil

from tests.localcluster.kubelet.world import World


async def test_a_pod_whose_folder_was_removed_can_be_deleted(world: World) -> None:
    world.start_kubelet()
    pod = await world.run("echo ready; sleep 1000")
    await world.says("ready")
    await world.phase("Running")

    shutil.rmtree(world.node / "pods" / pod["metadata"]["uid"])
    await world.delete()
    await world.vanished()

    assert world.processes() == set()
