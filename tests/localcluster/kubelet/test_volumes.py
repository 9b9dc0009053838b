from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.base.errors import CannotMount, CannotStart
from tarragon.localcluster.kubelet.volumes import volumes
from tarragon.localcluster.kubelet.volumes.mounts import mount_folders, remove_tree
from tarragon.localcluster.kubelet.volumes.sources import PodObjects
from tarragon.localcluster.kubelet.volumes.volumes import VolumeContext
from tests.conftest import others_can_reach
from tests.localcluster.kubelet.builders import container, pod
from tests.localcluster.kubelet.nobody import as_nobody, open_folder

SOURCES = PodObjects(
    config_maps={"cm": {"train.py": b"print(1)\n", "hosts": b"ps-0:2222\n", "blob": b"\xff\x00"}},
    secrets={"keys": {"token": b"s3cret ps-0:2222"}},
    claims={
        "data": {},
        "there": {"hostPath": {"path": "/"}, "capacity": {"storage": "1Gi"}},
        "lost": {"local": {"path": "/nowhere/at/all"}, "nodeAffinity": {"required": {}}},
        "far": {"accessModes": ["ReadWriteMany"], "nfs": {"server": "x", "path": "/"}},
    },
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def make(folder: Path, volume: dict[str, Any], **around: Any) -> Path:
    made = volumes.create_volumes(
        VolumeContext(
            pod=pod("p", volumes=[{"name": "v", **volume}], metadata={"labels": {"a": "b", "c": 'd"e'}}),
            folder=folder / "volumes",
            claims_folder=folder / "claims",
            user_folders=around.get("given", {}),
            sources=SOURCES,
            allocatable={"cpu": 8000},
            localize=lambda text: text.replace("ps-0:2222", "127.0.0.1:20000"),
        )
    )
    return made["v"]


def contents(place: Path) -> dict[str, bytes]:
    """The contents of files by path, as far as they are visible through the volume's links."""
    data = (place / "..data").resolve()
    files = {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert all((place / name).read_bytes() == data for name, data in files.items())
    assert {Path(name).parts[0] for name in files} == {path.name for path in place.iterdir() if path.name[:2] != ".."}
    return files


def test_an_empty_dir_is_a_folder_that_is_kept_for_the_pod(folder: Path) -> None:
    place = make(folder, {"emptyDir": {"medium": "Memory"}})
    (place / "x").touch()

    assert make(folder, {"emptyDir": {}}) == place
    assert (place / "x").exists()


def test_a_config_map_is_a_folder_of_files_with_translated_addresses(folder: Path) -> None:
    place = make(folder, {"configMap": {"name": "cm"}})

    assert contents(place) == {"train.py": b"print(1)\n", "hosts": b"127.0.0.1:20000\n", "blob": b"\xff\x00"}
    assert (place / "train.py").stat().st_mode & 0o777 == 0o644


def test_a_secret_is_not_translated(folder: Path) -> None:
    place = make(folder, {"secret": {"secretName": "keys", "defaultMode": 0o400}})

    assert contents(place) == {"token": b"s3cret ps-0:2222"}
    assert (place / "token").stat().st_mode & 0o777 == 0o400


def test_items_select_keys_paths_and_modes(folder: Path) -> None:
    items = [{"key": "train.py", "path": "src/main.py", "mode": 0o755}]

    place = make(folder, {"configMap": {"name": "cm", "items": items}})

    assert contents(place) == {"src/main.py": b"print(1)\n"}
    assert (place / "src/main.py").stat().st_mode & 0o777 == 0o755


def test_the_downward_api_is_a_folder_of_files(folder: Path) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    ]

    assert contents(make(folder, {"downwardAPI": {"items": items}})) == {"labels": b'a="b"\nc="d\\"e"', "cpu": b"8"}


def test_projections_are_merged_without_an_unavailable_token(folder: Path) -> None:
    parts = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "cm", "items": [{"key": "train.py", "path": "t.py"}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]

    place = make(folder, {"projected": {"sources": parts}})

    assert set(contents(place)) == {"t.py", "token", "name"}


def test_the_folder_of_a_claim_is_kept(folder: Path) -> None:
    place = make(folder, {"persistentVolumeClaim": {"claimName": "data"}})
    (place / "x").touch()

    assert make(folder, {"persistentVolumeClaim": {"claimName": "data"}}) == place
    assert place == folder / "claims/default/data"


def test_the_folder_of_a_claim_is_private(folder: Path, open_umask: None) -> None:
    make(folder, {"persistentVolumeClaim": {"claimName": "data"}})

    assert others_can_reach(folder) == []


def test_a_claim_bound_to_a_local_volume_is_the_folder_of_that_volume(folder: Path) -> None:
    assert make(folder, {"persistentVolumeClaim": {"claimName": "there"}}) == Path("/")
    with pytest.raises(CannotMount, match="local volume: /nowhere/at/all does not exist"):
        make(folder, {"persistentVolumeClaim": {"claimName": "lost"}})


def test_a_claim_bound_to_a_volume_with_a_driver_is_rejected(folder: Path) -> None:
    with pytest.raises(CannotStart, match=r"has the type nfs.* --volume far=FOLDER"):
        make(folder, {"persistentVolumeClaim": {"claimName": "far"}})


def test_a_claim_or_volume_may_be_mapped_to_a_folder_by_name(folder: Path) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "data"}}

    assert make(folder, claim, given={"data": folder}) == folder
    assert make(folder, {"nfs": {"server": "x", "path": "/"}}, given={"v": folder}) == folder


def chosen(key: str, path: str) -> dict[str, Any]:
    return {"configMap": {"name": "cm", "items": [{"key": key, "path": path}]}}


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        (chosen("no", "x"), "references non-existent config key: no"),
        (chosen("hosts", "../x"), "'../x' must be a path within the volume"),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"persistentVolumeClaim": {"claimName": "none"}}, 'persistentvolumeclaim "none" not found'),
        ({"hostPath": {"path": "/no", "type": "Directory"}}, "hostPath type check failed: /no is not a directory"),
        ({"hostPath": {"path": "/usr", "type": "File"}}, "hostPath type check failed: /usr is not a file"),
        ({"hostPath": {"path": "/usr", "type": "Socket"}}, "hostPath type check failed: /usr is not a socket file"),
    ],
)
def test_a_volume_that_cannot_be_created_fails_as_with_a_kubelet(folder: Path, volume: Any, words: str) -> None:
    with pytest.raises(CannotMount) as refusal:
        make(folder, volume)

    assert str(refusal.value) == f'MountVolume.SetUp failed for volume "v" : {words}'
    assert refusal.value.reason == "ContainerCreating"


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "none", "optional": True}},
        {"secret": {"secretName": "none", "optional": True}},
        {"configMap": {"name": "cm", "optional": True, "items": [{"key": "no", "path": "x"}]}},
    ],
)
def test_a_missing_optional_object_is_an_empty_folder(folder: Path, volume: Any) -> None:
    assert contents(make(folder, volume)) == {}


@pytest.mark.parametrize("kind", ["nfs", "csi", "ephemeral", "gitRepo", "somethingNew"])
def test_a_volume_that_needs_a_driver_is_rejected_with_a_remedy(folder: Path, kind: str) -> None:
    with pytest.raises(CannotStart) as refusal:
        make(folder, {kind: {}})

    assert (
        str(refusal.value)
        == f"volume v: {kind} is not available on a process node; give a folder with --volume v=FOLDER"
    )


@pytest.mark.parametrize(("kind", "made"), [("DirectoryOrCreate", Path.is_dir), ("FileOrCreate", Path.is_file)])
def test_a_host_path_is_created_if_its_type_says_so(folder: Path, kind: str, made: Any) -> None:
    assert made(make(folder, {"hostPath": {"path": str(folder / "new"), "type": kind}}))


def mounted(folder: Path, **mount: Any) -> dict[str, Path]:
    described = container(volumeMounts=[{"name": "v", "mountPath": "/data/", **mount}])
    return mount_folders(described, {"v": folder}, {"NAME": "w-0"})


def test_a_mount_path_is_the_folder_of_its_volume(folder: Path) -> None:
    assert mounted(folder) == {"/data": folder}


def test_a_missing_sub_path_is_created(folder: Path) -> None:
    place = mounted(folder, subPath="a/b")["/data"]

    assert place == folder / "a/b"
    assert place.is_dir()


def test_a_sub_path_may_be_a_file(folder: Path) -> None:
    (folder / "x.py").touch()

    assert mounted(folder, subPath="x.py") == {"/data": folder / "x.py"}


def test_a_sub_path_may_come_from_a_variable(folder: Path) -> None:
    assert mounted(folder, subPathExpr="runs/$(NAME)") == {"/data": folder / "runs/w-0"}
    with pytest.raises(CannotStart, match="a variable that is not set"):
        mounted(folder, subPathExpr="runs/$(NONE)")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc", "link", "link/passwd"])
def test_a_sub_path_cannot_lead_out_of_its_volume(folder: Path, path: str) -> None:
    volume = folder / "volume"
    volume.mkdir()
    (volume / "link").symlink_to("/etc")

    with pytest.raises(CannotStart, match="failed to prepare subPath"):
        mounted(volume, subPath=path)


def test_a_mount_of_an_unknown_volume_is_an_error() -> None:
    with pytest.raises(CannotStart, match="the pod has no volume 'v'"):
        mount_folders(container(volumeMounts=[{"name": "v", "mountPath": "/x"}]), {}, {})


def test_a_folder_is_removed_whatever_its_permissions() -> None:
    with open_folder() as folder:
        (folder / "kept").mkdir()

        def leave_and_remove() -> None:
            inner = folder / "pod/a/b"
            inner.mkdir(parents=True)
            (inner / "file").touch()
            inner.chmod(0o000)
            (folder / "pod/link").symlink_to(folder / "kept")
            remove_tree(folder / "pod")

        as_nobody(leave_and_remove)

        assert not (folder / "pod").exists()
        assert (folder / "kept").exists()
