"""The files of a node are private, even in a home that other users may enter."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import others_can_reach
from tests.localcluster.kubelet.world import World


async def test_the_files_of_a_node_and_its_pods_are_private(tmp_path: Path, open_umask: None) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    world = await World.make(home)
    world.start_kubelet(port_registry=tmp_path / "registry")
    await world.config_map("settings", color="blue")
    mounted = [{"name": "settings", "configMap": {"name": "settings"}}, {"name": "scratch", "emptyDir": {}}]
    await world.run("echo said; touch made", volumes=mounted, restartPolicy="Never")
    await world.phase("Succeeded")
    await world.close()

    assert (home / "node/n/identity").exists()
    assert others_can_reach(home) == []
