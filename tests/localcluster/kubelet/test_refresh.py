"""Mounted files follow the API, and are replaced atomically."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.kube.core import CONFIG_MAPS, SECRETS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes.atomic_writer import File, write_files
from tarragon.localcluster.kubelet.volumes.refresh import POLL_SECONDS, VolumeRefresher
from tarragon.localcluster.kubelet.volumes.tokens import ROOT_BUNDLE
from tests.localcluster.kubelet.builders import container_json, pod
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import ANY_POD, World

PROJECTED = {
    "sources": [
        {"configMap": {"name": "settings", "items": [{"key": "lr", "path": "deep/lr"}]}},
        {"secret": {"name": "keys", "optional": True}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
}


def text(data: str) -> File:
    return File(data.encode(), 0o644)


def test_files_are_replaced_atomically_and_old_ones_are_removed(tmp_path: Path) -> None:
    place = tmp_path / "v"
    write_files(place, {"a": text("1"), "deep/b": text("1")})
    opened = (place / "..data").resolve()
    watched = place / "..data"

    write_files(place, {"a": text("2"), "c": text("2")})

    assert {path.name for path in place.iterdir() if path.name[:2] != ".."} == {"a", "c"}
    assert ((place / "a").read_text(), (place / "c").read_text()) == ("2", "2")
    assert (place / "a").readlink() == Path("..data/a")
    assert watched.resolve() != opened
    assert not opened.exists()


def test_unchanged_files_are_not_rewritten(tmp_path: Path) -> None:
    place = tmp_path / "v"
    write_files(place, {"a": text("1")})
    before = (place / "..data").readlink()

    write_files(place, {"a": text("1")})
    assert (place / "..data").readlink() == before
    write_files(place, {"a": File(b"1", 0o600)})

    assert (place / "..data").readlink() != before


def test_the_files_of_an_interrupted_attempt_are_replaced(tmp_path: Path) -> None:
    place = tmp_path / "v"
    (place / "..half").mkdir(parents=True)
    (place / "..half" / "a").touch()

    write_files(place, {"a": text("1")})

    assert {path.name for path in place.iterdir() if path.name[:2] != ".."} == {"a"}
    assert not (place / "..half").exists()


def test_the_names_that_an_interrupted_attempt_did_not_link_are_linked_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "v"
    write_files(place, {"a": text("1"), "deep/b": text("1")})
    (place / "a").unlink()

    write_files(place, {"a": text("1"), "deep/b": text("1")})

    assert (place / "a").read_text() == "1"


def test_the_old_names_and_files_that_an_interrupted_attempt_left_are_removed_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "v"
    write_files(place, {"a": text("1")})
    (place / "..old").mkdir()
    (place / "b").symlink_to("..data/b")

    write_files(place, {"a": text("1")})

    assert {path.name for path in place.iterdir()} == {"a", "..data", (place / "..data").readlink().name}


def test_what_a_container_adds_to_a_volume_stays(tmp_path: Path) -> None:
    place = tmp_path / "v"
    write_files(place, {"train.py": text("1")})
    (place / "__pycache__").mkdir()
    (place / "here").symlink_to(".")

    write_files(place, {"train.py": text("2")})

    assert (place / "__pycache__").exists()
    assert (place / "here").is_symlink()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_running_pod_sees_changed_objects(world: World, restarted: bool) -> None:  # noqa: FBT001 - a table
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.config_map("settings", lr="0.1")
    mounts = [{"name": "v", "mountPath": "/v"}]
    body = container_json(command=["sh", "-c", "sleep 1000"], volumeMounts=mounts)
    volumes = [{"name": "v", "projected": PROJECTED}]
    created = await world.create("p", body, volumes=volumes, metadata={"labels": {"a": "b"}})
    await world.phase("Running")
    place = world.node / "pods" / created["metadata"]["uid"] / "volumes/v"
    assert (place / "deep/lr").read_text() == "0.1"

    await world.cluster.patch(CONFIG_MAPS, Key("default", "settings"), {"data": {"lr": "0.2"}})
    keys = {"metadata": {"name": "keys", "namespace": "default"}, "data": {"k": base64.b64encode(b"new").decode()}}
    await world.cluster.create(SECRETS, keys)
    await world.cluster.patch(ANY_POD, Key("default", "p"), {"metadata": {"labels": {"a": "c"}}})
    if restarted:
        await world.stop_kubelet()
        world.start_kubelet(clock)

    def is_new() -> bool:
        clock.advance(POLL_SECONDS)
        files = [place / "deep/lr", place / "k", place / "labels"]
        return [path.read_text() if path.exists() else "" for path in files] == ["0.2", "new", 'a="c"']

    await eventually(is_new)
    await world.cluster.delete(CONFIG_MAPS, Key("default", "settings"))
    clock.advance(POLL_SECONDS)
    await world.event("Started")
    assert (place / "deep/lr").read_text() == "0.2"


async def test_downward_api_files_are_updated_as_soon_as_the_pod_changes(world: World) -> None:
    world.start_kubelet(FakeClock())
    mounts = [{"name": "v", "mountPath": "/v"}]
    body = container_json(command=["sh", "-c", "sleep 1000"], volumeMounts=mounts)
    items = [{"path": "leaving", "fieldRef": {"fieldPath": "metadata.annotations['leaving']"}}]
    created = await world.create("p", body, volumes=[{"name": "v", "downwardAPI": {"items": items}}])
    await world.phase("Running")
    place = world.node / "pods" / created["metadata"]["uid"] / "volumes/v/leaving"
    assert place.read_text() == ""

    for note in ("soon", "now"):
        await world.cluster.patch(ANY_POD, Key("default", "p"), {"metadata": {"annotations": {"leaving": note}}})
        await eventually(lambda note=note: place.read_text() == note)  # type: ignore[misc]


async def test_a_config_map_is_updated_as_soon_as_the_pod_changes(world: World) -> None:
    await world.config_map("hosts", list="a")
    world.start_kubelet(FakeClock())
    mounts = [{"name": "v", "mountPath": "/v"}]
    body = container_json(command=["sh", "-c", "sleep 1000"], volumeMounts=mounts)
    created = await world.create("p", body, volumes=[{"name": "v", "configMap": {"name": "hosts"}}])
    await world.phase("Running")
    place = world.node / "pods" / created["metadata"]["uid"] / "volumes/v/list"

    for hosts in ("a b", "b"):
        await world.cluster.patch(CONFIG_MAPS, Key("default", "hosts"), {"data": {"list": hosts}})
        await world.cluster.patch(ANY_POD, Key("default", "p"), {"metadata": {"annotations": {"digest": hosts}}})
        await eventually(lambda hosts=hosts: place.read_text() == hosts)  # type: ignore[misc]


async def test_the_mounted_root_certificates_are_written_only_when_they_change(world: World) -> None:
    account = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": ROOT_BUNDLE}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    plain = pod("p", container_json(), volumes=[{"name": "v", "projected": {"sources": account}}])
    refreshed: list[Pod] = []

    async def refresh(pod: Pod) -> None:
        refreshed.append(pod)

    keeper = VolumeRefresher(world.cluster, FakeClock(), refresh)
    await keeper.poll([plain])
    await world.config_map(ROOT_BUNDLE, **{"ca.crt": "1"})
    await keeper.poll([plain])
    await keeper.poll([plain])
    assert refreshed == []

    await world.cluster.patch(CONFIG_MAPS, Key("default", ROOT_BUNDLE), {"data": {"ca.crt": "2"}})
    await keeper.poll([plain])

    assert refreshed == [plain]
