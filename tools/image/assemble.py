"""The second half of a build, which runs on the image's own Python: compiles, packs and compresses the layers.

    python -m tools.image.assemble JOB

JOB is a JSON file: a Job. The blobs go into a folder, and the descriptor of the manifest to standard output.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import py_compile
import sys
import tarfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
COMPRESSION = 6
_SHARED_FOLDERS = ("tmp",)
"""Everybody may write there, unless the file system is read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be assembled."""

    layers: list[str]
    """The folders with their files, the lowest first; the last part of a path says what is in it."""
    blobs: str
    """The folder for the result."""
    architecture: str
    created: str
    config: dict[str, Any]
    annotations: dict[str, str]


def main(path: str) -> None:
    job = Job(**json.loads(Path(path).read_text()))
    print(json.dumps(assemble(job)))


def assemble(job: Job) -> dict[str, Any]:
    """Write an image's blobs, and return the descriptor of its manifest."""
    blobs = Path(job.blobs)
    layers = [_layer(Path(folder), blobs) for folder in job.layers]
    config = {
        "created": job.created,
        "architecture": job.architecture,
        "os": "linux",
        "config": job.config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in layers]},
        "history": [{"created": job.created, "created_by": "tarragon/tools/image", "comment": Path(folder).name}
                    for folder in job.layers],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": write_blob(blobs, CONFIG, _json(config)),
        "layers": [descriptor for descriptor, _ in layers],
        "annotations": job.annotations,
    }
    return write_blob(blobs, MANIFEST, _json(manifest))


def write_blob(blobs: Path, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _layer(folder: Path, blobs: Path) -> tuple[dict[str, Any], str]:
    """Return the descriptor of a layer and the digest of what is in it."""
    compile_modules(folder)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            archive.addfile(_header(path, name), io.BytesIO(b"" if not _is_file(path) else path.read_bytes()))
    content = packed.getvalue()
    compressed = gzip.compress(content, COMPRESSION, mtime=0)
    descriptor = write_blob(blobs, LAYER, compressed)
    return descriptor, f"sha256:{hashlib.sha256(content).hexdigest()}"


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _header(path: Path, name: str) -> tarfile.TarInfo:
    """Everything belongs to root and is from 1970: neither the machine nor the day of the build is in a layer."""
    header = tarfile.TarInfo(name)
    if path.is_symlink():
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, os.readlink(path), 0o777  # noqa: PTH115  # as it is
    elif path.is_dir():
        header.type, header.mode = tarfile.DIRTYPE, 0o1777 if name in _SHARED_FOLDERS else 0o755
    else:
        header.size, header.mode = path.stat().st_size, 0o755 if path.stat().st_mode & 0o100 else 0o644
    return header


def compile_modules(folder: Path) -> None:
    """Compile every module. Python never asks whether the source has changed: nobody can change it."""
    warnings.simplefilter("ignore", SyntaxWarning)
    for source in _modules(folder):
        py_compile.compile(
            str(source),
            dfile=f"/{source.relative_to(folder).as_posix()}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _modules(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if path.parent.name != "bin")


def write_job(job: Job, path: Path) -> None:
    path.write_text(json.dumps(asdict(job)))


if __name__ == "__main__":
    main(sys.argv[1])
