"""Creates a pod's volumes as local folders, once, before its first container starts.

The folder of a claim outlives the pod. A volume that needs a driver (NFS, CSI, …) is rejected by name, unless the user
maps it to a folder. Read-only mounts are not enforced, as all processes belong to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tarragon.base.resources import Resources
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base import downward
from tarragon.localcluster.kubelet.base.errors import CannotMount, CannotStart
from tarragon.localcluster.kubelet.base.spec import Container, Pod, ResourceFieldSelector
from tarragon.localcluster.kubelet.volumes import atomic_writer
from tarragon.localcluster.kubelet.volumes.atomic_writer import File
from tarragon.localcluster.kubelet.volumes.mounts import OutsideVolume
from tarragon.localcluster.kubelet.volumes.sources import Files, PodObjects
from tarragon.localcluster.kubelet.volumes.tokens import TokenProjection, token_spec

Source: TypeAlias = dict[str, Any]
"""The value of a volume's type field, such as `configMap`."""

FILE_MODE = 0o644
TOKEN_MODE = 0o600
"""The mode of token files, whatever the volume says, as all containers run as the same user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeContext:
    """The inputs of a pod's volumes. `given` are the user's folders, by volume or claim name.

    `local` translates the text of a configuration file.
    """

    pod: Pod
    folder: Path
    claims_folder: Path
    user_folders: Mapping[str, Path]
    sources: PodObjects
    allocatable: Resources
    localize: Callable[[str], str]


def create_volumes(context: VolumeContext) -> dict[str, Path]:
    """Create the volumes, and return their folders by name. Raises CannotMount, or CannotStart if unsupported."""
    return {volume["name"]: _place(volume, context) for volume in context.pod.spec.volumes}


def refresh_volumes(context: VolumeContext) -> None:
    """Update the files of volumes that follow the API. Files of deleted objects stay, as in Kubernetes."""
    for volume in context.pod.spec.volumes:
        place = context.folder / str(volume["name"])
        kind = next((kind for kind in _LIVE if volume.get(kind) is not None), None)
        if kind is not None and atomic_writer.has_layout(place):
            with suppress(_Missing):
                _MAKERS[kind](volume[kind], place, context)


def token_files(context: VolumeContext) -> dict[TokenProjection, bytes]:
    """The tokens in the pod's volumes, which `TokenRenewer` renews."""
    tokens: dict[TokenProjection, bytes] = {}
    for volume in context.pod.spec.volumes:
        for part in (volume.get("projected") or {}).get("sources") or []:
            if token := part.get("serviceAccountToken"):
                with suppress(OSError):
                    tokens[token_spec(token)] = (context.folder / str(volume["name"]) / token["path"]).read_bytes()
    return tokens


def _place(volume: Source, context: VolumeContext) -> Path:
    name = str(volume["name"])
    kind = next((key for key, value in volume.items() if key != "name" and value is not None), "emptyDir")
    source: Source = volume.get(kind) or {}
    try:
        given = context.user_folders.get(str(source.get("claimName") or "")) or context.user_folders.get(name)
        if given is not None:
            return _existing_folder(given)
        if kind not in _MAKERS:
            raise CannotStart(
                f"volume {name}: {kind} is not available on a process node; give a folder with --volume {name}=FOLDER"
            )
        return _MAKERS[kind](source, context.folder / name, context)
    except (_Missing, OutsideVolume) as error:
        raise CannotMount(name, str(error)) from error
    except OSError as error:
        raise CannotMount(name, f"{error.strerror}: {error.filename}") from error


class _Missing(Exception):
    """An object or folder that a volume needs does not exist."""


def _existing_folder(folder: Path) -> Path:
    if not folder.exists():
        raise _Missing(f"the folder {folder} given with --volume does not exist")
    return folder


def _empty_dir(_: Source, place: Path, __: VolumeContext) -> Path:
    place.mkdir(mode=0o777, parents=True, exist_ok=True)
    return place


def _claim(source: Source, place: Path, context: VolumeContext) -> Path:
    name = str(source.get("claimName") or "")
    if name not in context.sources.claims:
        raise _Missing(f'persistentvolumeclaim "{name}" not found')
    volume = context.sources.claims[name]
    if volume.get("hostPath"):
        return _host_path(volume["hostPath"], place, context)
    if volume.get("local"):
        return _local(volume["local"])
    if kind := next((kind for kind, value in volume.items() if kind not in _COMMON_FIELDS and value), ""):
        raise CannotStart(
            f"claim {name}: its volume has the type {kind}, which a process node can't mount; "
            f"give a folder with --volume {name}=FOLDER"
        )
    folder = context.claims_folder / context.pod.metadata.namespace / name
    create_private_folder(folder)
    return folder


_COMMON_FIELDS = frozenset(
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
"""Fields of a persistent volume's spec that are not its type."""


def _local(source: Source) -> Path:
    """A local volume, which unlike a hostPath must exist."""
    path = Path(str(source.get("path") or "/"))
    if not path.exists():
        raise _Missing(f"local volume: {path} does not exist")
    return path


def _host_path(source: Source, _: Path, __: VolumeContext) -> Path:
    path, kind = Path(str(source.get("path") or "/")), str(source.get("type") or "")
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(FILE_MODE)
    has_type = _TYPES.get(kind.removesuffix("OrCreate"))
    if has_type is not None and not has_type(path):
        raise _Missing(f"hostPath type check failed: {path} is not a {_TYPE_NAMES[kind.removesuffix('OrCreate')]}")
    return path


_TYPES: Mapping[str, Callable[[Path], bool]] = {
    "Directory": Path.is_dir,
    "File": Path.is_file,
    "Socket": Path.is_socket,
    "CharDevice": Path.is_char_device,
    "BlockDevice": Path.is_block_device,
}
_TYPE_NAMES = {
    "Directory": "directory",
    "File": "file",
    "Socket": "socket file",
    "CharDevice": "character device",
    "BlockDevice": "block device",
}


def _config_map(source: Source, place: Path, context: VolumeContext) -> Path:
    return _written(place, _of_config_map(source, context, _mode(source)))


def _secret(source: Source, place: Path, context: VolumeContext) -> Path:
    return _written(place, _of_secret(source, str(source.get("secretName") or ""), context, _mode(source)))


def _downward(source: Source, place: Path, context: VolumeContext) -> Path:
    return _written(place, _of_downward(source, context, _mode(source)))


def _projected(source: Source, place: Path, context: VolumeContext) -> Path:
    files: dict[str, File] = {}
    for part in source.get("sources") or []:
        files |= _projection(part, context, _mode(source))
    return _written(place, files)


def _projection(part: Source, context: VolumeContext, mode: int) -> dict[str, File]:
    if (config_map := part.get("configMap")) is not None:
        return _of_config_map(config_map, context, mode)
    if (secret := part.get("secret")) is not None:
        return _of_secret(secret, str(secret.get("name") or ""), context, mode)
    if (downward_api := part.get("downwardAPI")) is not None:
        return _of_downward(downward_api, context, mode)
    if (token := part.get("serviceAccountToken")) is not None:
        # Without an issuer of tokens there is none.
        data = context.sources.tokens.get(token_spec(token))
        return {} if data is None else {str(token.get("path") or ""): File(data, TOKEN_MODE)}
    raise _Missing(f"{next(iter(part), 'an empty source')} cannot be projected on a process node")


def _mode(source: Source) -> int:
    mode = source.get("defaultMode")
    return FILE_MODE if mode is None else int(mode)


def _of_config_map(source: Source, context: VolumeContext, mode: int) -> dict[str, File]:
    name = str(source.get("name") or "")
    files = _required(context.sources.config_maps.get(name), source, f'configmap "{name}" not found')
    return _selected({key: _translated(data, context.localize) for key, data in files.items()}, source, mode)


def _of_secret(source: Source, name: str, context: VolumeContext, mode: int) -> dict[str, File]:
    files = _required(context.sources.secrets.get(name), source, f'secret "{name}" not found')
    return _selected(files, source, mode)


def _required(files: Files | None, source: Source, message: str) -> Files:
    if files is None and not source.get("optional"):
        raise _Missing(message)
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
    selected: dict[str, File] = {}
    for item in items:
        if item["key"] in files:
            selected[item["path"]] = File(files[item["key"]], int(item.get("mode") or mode))
        elif not source.get("optional"):
            raise _Missing(f"references non-existent config key: {item['key']}")
    return selected


def _of_downward(source: Source, context: VolumeContext, mode: int) -> dict[str, File]:
    files: dict[str, File] = {}
    for item in source.get("items") or []:
        if field := item.get("fieldRef"):
            text = downward.field_value(context.pod, str(field.get("fieldPath") or ""))
        else:
            selector = decode(encode(item.get("resourceFieldRef") or {}), ResourceFieldSelector)
            text = downward.resource_value(context.pod, Container(), selector, context.allocatable)
        files[item["path"]] = File(text.encode(), int(item.get("mode") or mode))
    return files


def _written(place: Path, files: Mapping[str, File]) -> Path:
    atomic_writer.write_files(place, files)
    return place


_LIVE = ("configMap", "secret", "downwardAPI", "projected")
"""Volume types whose files follow the API."""

_MAKERS: Mapping[str, Callable[[Source, Path, VolumeContext], Path]] = {
    "emptyDir": _empty_dir,
    "persistentVolumeClaim": _claim,
    "hostPath": _host_path,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
}
