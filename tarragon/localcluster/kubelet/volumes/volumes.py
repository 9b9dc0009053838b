"""Volumes as folders of this machine: made once for a pod, before its first container starts.

A claim is a folder that stays. What needs a driver (NFS, CSI, …) is refused by name, unless the user says which folder
stands for it. Whether a mount is read-only is not enforced: all processes are the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tarragon.base.resources import Resources
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.home.home import make_private
from tarragon.localcluster.kubelet.base import downward
from tarragon.localcluster.kubelet.base.errors import CannotMount, CannotStart
from tarragon.localcluster.kubelet.base.spec import Container, Pod, ResourceFieldSelector
from tarragon.localcluster.kubelet.volumes import atomic_writer
from tarragon.localcluster.kubelet.volumes.atomic_writer import File
from tarragon.localcluster.kubelet.volumes.mounts import OutOfBounds
from tarragon.localcluster.kubelet.volumes.sources import Files, Sources
from tarragon.localcluster.kubelet.volumes.tokens import Wish, wish_of

Source: TypeAlias = dict[str, Any]
"""What stands under the type's name in a volume."""

FILE_MODE = 0o644
TOKEN_MODE = 0o600
"""Whatever the volume says: all containers are the same user here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What volumes are made from. `given` are folders the user named, by name of a volume or a claim.

    `local` translates the text of a configuration file.
    """

    pod: Pod
    folder: Path
    claims: Path
    given: Mapping[str, Path]
    sources: Sources
    allocatable: Resources
    local: Callable[[str], str]


def make(around: Surroundings) -> dict[str, Path]:
    """The place of each volume, made. Raises CannotMount for the first that cannot be."""
    return {volume["name"]: _place(volume, around) for volume in around.pod.spec.volumes}


def refresh(around: Surroundings) -> None:
    """Write anew what the API says otherwise by now. What is gone stays as it was, as with any kubelet."""
    for volume in around.pod.spec.volumes:
        place = around.folder / str(volume["name"])
        kind = next((kind for kind in _LIVE if volume.get(kind) is not None), None)
        if kind is not None and atomic_writer.is_written(place):
            with suppress(_Missing):
                _MAKERS[kind](volume[kind], place, around)


def token_files(around: Surroundings) -> dict[Wish, bytes]:
    """The tokens that lie in the pod's volumes; somebody else renews them."""
    found: dict[Wish, bytes] = {}
    for volume in around.pod.spec.volumes:
        for part in (volume.get("projected") or {}).get("sources") or []:
            if token := part.get("serviceAccountToken"):
                with suppress(OSError):
                    found[wish_of(token)] = (around.folder / str(volume["name"]) / token["path"]).read_bytes()
    return found


def _place(volume: Source, around: Surroundings) -> Path:
    name = str(volume["name"])
    kind = next((key for key, value in volume.items() if key != "name" and value is not None), "emptyDir")
    source: Source = volume.get(kind) or {}
    try:
        given = around.given.get(str(source.get("claimName") or "")) or around.given.get(name)
        if given is not None:
            return _existing_folder(given)
        if kind not in _MAKERS:
            raise CannotStart(
                f"volume {name}: {kind} is not available on a process node; give a folder with --volume {name}=FOLDER"
            )
        return _MAKERS[kind](source, around.folder / name, around)
    except (_Missing, OutOfBounds) as error:
        raise CannotMount(name, str(error)) from error
    except OSError as error:
        raise CannotMount(name, f"{error.strerror}: {error.filename}") from error


class _Missing(Exception):
    """Something that a volume is made of is not there."""


def _existing_folder(folder: Path) -> Path:
    if not folder.exists():
        raise _Missing(f"{folder}, which was given for it with --volume, does not exist")
    return folder


def _empty_dir(_: Source, place: Path, __: Surroundings) -> Path:
    place.mkdir(mode=0o777, parents=True, exist_ok=True)
    return place


def _claim(source: Source, place: Path, around: Surroundings) -> Path:
    name = str(source.get("claimName") or "")
    if name not in around.sources.claims:
        raise _Missing(f'persistentvolumeclaim "{name}" not found')
    volume = around.sources.claims[name]
    if volume.get("hostPath"):
        return _host_path(volume["hostPath"], place, around)
    if volume.get("local"):
        return _local(volume["local"])
    if kind := next((kind for kind, said in volume.items() if kind not in _OF_ANY_VOLUME and said), ""):
        raise CannotStart(
            f"claim {name}: its volume is of the kind {kind}, which a process node can't mount; "
            f"give a folder with --volume {name}=FOLDER"
        )
    folder = around.claims / around.pod.metadata.namespace / name
    make_private(folder)
    return folder


_OF_ANY_VOLUME = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
"""What a volume says besides where it is."""


def _local(source: Source) -> Path:
    """Unlike a hostPath it must be there."""
    path = Path(str(source.get("path") or "/"))
    if not path.exists():
        raise _Missing(f"local volume: {path} does not exist")
    return path


def _host_path(source: Source, _: Path, __: Surroundings) -> Path:
    path, kind = Path(str(source.get("path") or "/")), str(source.get("type") or "")
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(FILE_MODE)
    is_right = _TYPES.get(kind.removesuffix("OrCreate"))
    if is_right is not None and not is_right(path):
        raise _Missing(f"hostPath type check failed: {path} is not a {_WORDS[kind.removesuffix('OrCreate')]}")
    return path


_TYPES: Mapping[str, Callable[[Path], bool]] = {
    "Directory": Path.is_dir,
    "File": Path.is_file,
    "Socket": Path.is_socket,
    "CharDevice": Path.is_char_device,
    "BlockDevice": Path.is_block_device,
}
_WORDS = {
    "Directory": "directory",
    "File": "file",
    "Socket": "socket file",
    "CharDevice": "character device",
    "BlockDevice": "block device",
}


def _config_map(source: Source, place: Path, around: Surroundings) -> Path:
    return _written(place, _of_config_map(source, around, _mode(source)))


def _secret(source: Source, place: Path, around: Surroundings) -> Path:
    return _written(place, _of_secret(source, str(source.get("secretName") or ""), around, _mode(source)))


def _downward(source: Source, place: Path, around: Surroundings) -> Path:
    return _written(place, _of_downward(source, around, _mode(source)))


def _projected(source: Source, place: Path, around: Surroundings) -> Path:
    files: dict[str, File] = {}
    for part in source.get("sources") or []:
        files |= _projection(part, around, _mode(source))
    return _written(place, files)


def _projection(part: Source, around: Surroundings, mode: int) -> dict[str, File]:
    if (config_map := part.get("configMap")) is not None:
        return _of_config_map(config_map, around, mode)
    if (secret := part.get("secret")) is not None:
        return _of_secret(secret, str(secret.get("name") or ""), around, mode)
    if (downward_api := part.get("downwardAPI")) is not None:
        return _of_downward(downward_api, around, mode)
    if (token := part.get("serviceAccountToken")) is not None:
        # None on a node of somebody else's cluster: only a kubelet of its own may ask for another's token there.
        found = around.sources.tokens.get(wish_of(token))
        return {} if found is None else {str(token.get("path") or ""): File(found, TOKEN_MODE)}
    raise _Missing(f"{next(iter(part), 'an empty source')} cannot be projected on a process node")


def _mode(source: Source) -> int:
    mode = source.get("defaultMode")
    return FILE_MODE if mode is None else int(mode)


def _of_config_map(source: Source, around: Surroundings, mode: int) -> dict[str, File]:
    name = str(source.get("name") or "")
    files = _found(around.sources.config_maps.get(name), source, f'configmap "{name}" not found')
    return _selected({key: _translated(data, around.local) for key, data in files.items()}, source, mode)


def _of_secret(source: Source, name: str, around: Surroundings, mode: int) -> dict[str, File]:
    files = _found(around.sources.secrets.get(name), source, f'secret "{name}" not found')
    return _selected(files, source, mode)


def _found(files: Files | None, source: Source, words: str) -> Files:
    if files is None and not source.get("optional"):
        raise _Missing(words)
    return files or {}


def _translated(data: bytes, local: Callable[[str], str]) -> bytes:
    try:
        return local(data.decode()).encode()
    except UnicodeDecodeError:
        return data


def _selected(files: Files, source: Source, mode: int) -> dict[str, File]:
    items = source.get("items")
    if not items:
        return {key: File(data, mode) for key, data in files.items()}
    chosen: dict[str, File] = {}
    for item in items:
        if item["key"] in files:
            chosen[item["path"]] = File(files[item["key"]], int(item.get("mode") or mode))
        elif not source.get("optional"):
            raise _Missing(f"references non-existent config key: {item['key']}")
    return chosen


def _of_downward(source: Source, around: Surroundings, mode: int) -> dict[str, File]:
    files: dict[str, File] = {}
    for item in source.get("items") or []:
        if field := item.get("fieldRef"):
            text = downward.field(around.pod, str(field.get("fieldPath") or ""))
        else:
            selector = decode(encode(item.get("resourceFieldRef") or {}), ResourceFieldSelector)
            text = downward.resource(around.pod, Container(), selector, around.allocatable)
        files[item["path"]] = File(text.encode(), int(item.get("mode") or mode))
    return files


def _written(place: Path, files: Mapping[str, File]) -> Path:
    atomic_writer.write(place, files)
    return place


_LIVE = ("configMap", "secret", "downwardAPI", "projected")
"""Kinds of which the files follow what the API says."""

_MAKERS: Mapping[str, Callable[[Source, Path, Surroundings], Path]] = {
    "emptyDir": _empty_dir,
    "persistentVolumeClaim": _claim,
    "hostPath": _host_path,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
}
