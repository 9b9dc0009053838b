"""The results of a build: an OCI image layout for all architectures, and an archive for each."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.image.assemble import MANIFEST, write_blob
from tools.image.sbom import MEDIA_TYPE

INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
REFERENCE = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
Descriptor = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Image:
    """An assembled image of one architecture."""

    manifest: Descriptor
    sbom: bytes


def write_layout(folder: Path, images: Mapping[str, Image], name: str, tag: str) -> str:
    """Complete the layout in `folder`, where the blobs of the images are, and return the digest of its index.

    Each bill of materials refers to its image, as registries since OCI 1.1 list them.
    """
    blobs = folder / "blobs" / "sha256"
    manifests = [
        {**image.manifest, "platform": {"architecture": architecture, "os": "linux"}}
        for architecture, image in images.items()
    ]
    descriptor = write_blob(blobs, INDEX, _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    top = [{**descriptor, "annotations": _names(name, tag)}, *(_referrer(blobs, image) for image in images.values())]
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": top}))
    (folder / "oci-layout").write_bytes(_LAYOUT)
    return str(descriptor["digest"])


def write_archive(archive: Path, layout: Path, image: Image, name: str, tag: str) -> None:
    """Write an archive with one image, which Docker of any version, containerd, Podman and kind load."""
    blobs = layout / "blobs" / "sha256"
    manifest = json.loads(_blob(blobs, image.manifest).read_bytes())
    parts = [image.manifest, manifest["config"], *manifest["layers"]]
    top = [{**image.manifest, "annotations": _names(name, tag)}]
    # What Docker read before it knew of OCI.
    docker = {
        "Config": _path(manifest["config"]),
        "RepoTags": [f"{name}:{tag}"],
        "Layers": [_path(layer) for layer in manifest["layers"]],
    }
    texts = {
        "oci-layout": _LAYOUT,
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": top}),
        "manifest.json": _json([docker]),
    }
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        for path, content in texts.items():
            packed.addfile(_header(path, len(content)), io.BytesIO(content))
        for part in parts:
            with _blob(blobs, part).open("rb") as content_of_blob:
                packed.addfile(_header(_path(part), part["size"]), content_of_blob)


def unpacked_size(layout: Path, image: Image) -> int:
    """Return the bytes of all files."""
    blobs = layout / "blobs" / "sha256"
    manifest = json.loads(_blob(blobs, image.manifest).read_bytes())
    return sum(member.size for layer in manifest["layers"] for member in tarfile.open(_blob(blobs, layer)))


def unpack_image(layout: Path, image: Descriptor, root: Path) -> None:
    """Unpack the layers of a manifest as a container runtime would."""
    blobs = layout / "blobs" / "sha256"
    for layer in json.loads(_blob(blobs, image).read_bytes())["layers"]:
        with tarfile.open(_blob(blobs, layer)) as archive:
            archive.extractall(root, filter="fully_trusted")  # noqa: S202  # it was built a moment ago


def compressed_size(layout: Path, image: Image) -> int:
    """Return the bytes that a node downloads."""
    manifest = json.loads(_blob(layout / "blobs" / "sha256", image.manifest).read_bytes())
    return sum(layer["size"] for layer in manifest["layers"])


def empty_layout(folder: Path) -> Path:
    """Begin a layout anew, and return its folder of blobs."""
    if folder.exists():
        shutil.rmtree(folder)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    return blobs


def _referrer(blobs: Path, image: Image) -> Descriptor:
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": MEDIA_TYPE,
        "config": write_blob(blobs, EMPTY, b"{}"),
        "layers": [write_blob(blobs, MEDIA_TYPE, image.sbom)],
        "subject": image.manifest,
    }
    return {**write_blob(blobs, MANIFEST, _json(manifest)), "artifactType": MEDIA_TYPE}


def _names(name: str, tag: str) -> Mapping[str, str]:
    return {REFERENCE: tag, CONTAINERD_NAME: f"docker.io/library/{name}:{tag}"}


def _blob(blobs: Path, descriptor: Descriptor) -> Path:
    digest: str = descriptor["digest"]
    return blobs / digest.removeprefix("sha256:")


def _path(descriptor: Descriptor) -> str:
    digest: str = descriptor["digest"]
    return "blobs/" + digest.replace(":", "/")


def _header(path: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.size, header.mode = size, 0o644
    return header


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
