"""A build, from the lock files to the layout: what `make image` does."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon import __version__
from tools.image import staging
from tools.image.assemble import Job, write_job
from tools.image.debian import Lock, read_lock
from tools.image.errors import ImageError
from tools.image.kubectl import build_kubectl, kubectl_version, modules_of
from tools.image.layout import Image, empty_layout, write_archive, write_layout
from tools.image.python_packages import install_dependencies, installed_packages
from tools.image.sbom import Contents, render_sbom

NAME = "tarragon"
ARCHITECTURES = ("amd64", "arm64")
CACHE = staging.ROOT / ".tools" / "image"
SOURCE = "https://github.com/tarragon-dev/tarragon"
SBOM = "usr/share/doc/tarragon/sbom.spdx.json"
PARTS_OF_THE_IMAGE = ("tarragon", "tools/image", "tools/kubectl", "tools/install_kubectl.sh", "uv.lock", "LICENSE")
_MACHINES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
_LOADERS: Mapping[str, str] = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
_LIBRARIES: Mapping[str, str] = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The commit that an image is built from."""

    revision: str
    """Empty outside of a git repository; with `-dirty` where files differ from the commit."""
    created: str
    """When it was made, in RFC 3339: the day of the build would give each build another digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be built."""

    output: Path
    architectures: Sequence[str] = ARCHITECTURES
    has_kubectl: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    layout: Path
    digest: str
    images: Mapping[str, Image]
    archives: Sequence[Path]


def build(request: Request, origin: Origin) -> Result:
    """Build an image for each architecture, and write the layout, the archives and the bills of materials."""
    lock, layout = read_lock(), request.output / "image"
    blobs = empty_layout(layout)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="build-") as folder:
        work = Path(folder)
        python = _stage_python(lock, work)
        images = {}
        for architecture in request.architectures:
            contents, layers = _stage(request, lock, architecture, origin, work)
            sbom = render_sbom(contents)
            (layers[-1] / SBOM).write_bytes(sbom)
            job = Job(
                layers=[str(layer) for layer in layers],
                blobs=str(blobs),
                architecture=architecture,
                created=origin.created,
                config=_config(origin),
                annotations=_labels(origin),
            )
            images[architecture] = Image(_assemble(job, python, work), sbom)
    return _write(request.output, layout, images)


def read_origin() -> Origin:
    """Return the commit that is checked out. SOURCE_DATE_EPOCH replaces its time, and is needed without one."""
    seconds, revision = os.environ.get("SOURCE_DATE_EPOCH", ""), _git("rev-parse", "HEAD")
    seconds = seconds or _git("log", "-1", "--format=%ct")
    if not seconds.isdigit():
        raise ImageError("this is not a git repository: set SOURCE_DATE_EPOCH to the seconds of the image's date")
    if revision and _git("status", "--porcelain", "--", *PARTS_OF_THE_IMAGE):
        revision += "-dirty"
    return Origin(revision, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds))))


def _git(*words: str) -> str:
    try:
        ended = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=staging.ROOT)
    except FileNotFoundError:
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""


def _stage_python(lock: Lock, work: Path) -> Sequence[str]:
    """Unpack the image's own Python for this machine, and return the command that runs it."""
    machine = _MACHINES.get(platform.machine()) if platform.system() == "Linux" else None
    if machine is None:
        raise ImageError(
            f"the image's Python runs during the build, which needs Linux on {' or '.join(_MACHINES)}, not "
            f"{platform.system()} on {platform.machine()}"
        )
    root = work / "host"
    staging.stage_debian(lock.packages[machine], CACHE, root)
    libraries = root / "usr/lib" / _LIBRARIES[machine]
    loader = [str(libraries / _LOADERS[machine]), "--library-path", str(libraries)]
    return [*loader, str(root / "usr/bin" / staging.PYTHON)]


def _stage(
    request: Request, lock: Lock, architecture: str, origin: Origin, work: Path
) -> tuple[Contents, Sequence[Path]]:
    """Lay out the layers; what changes least is the lowest."""
    root = work / architecture
    debian, dependencies, tools, own = (root / name for name in ("debian", "python-packages", "kubectl", "tarragon"))
    staging.stage_debian(lock.packages[architecture], CACHE, debian)
    installed = install_dependencies(architecture, work)
    staging.stage_dependencies(installed, dependencies)
    staging.stage_tarragon(own)
    program = build_kubectl(architecture, work) if request.has_kubectl else None
    if program is not None:
        staging.stage_kubectl(program, tools)
    contents = Contents(
        version=__version__,
        architecture=architecture,
        created=origin.created,
        debian_release=lock.release,
        debian=lock.packages[architecture],
        python=list(installed_packages(installed)),
        kubectl_version=kubectl_version(),
        kubectl=[] if program is None else list(modules_of(program)),
    )
    return contents, [debian, dependencies, *([] if program is None else [tools]), own]


def _assemble(job: Job, python: Sequence[str], work: Path) -> dict[str, object]:
    path, home = work / "job.json", work / "host" / "usr"
    write_job(job, path)
    environment = {"PYTHONHOME": str(home), "PYTHONPATH": str(staging.ROOT), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    command = [*python, "-B", "-s", "-m", "tools.image.assemble", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode != 0:
        raise ImageError(f"the layers were not packed:\n{ended.stderr.strip()}")
    descriptor: dict[str, object] = json.loads(ended.stdout)
    return descriptor


def _config(origin: Origin) -> dict[str, object]:
    return {
        "User": f"{staging.USER}:{staging.USER}",
        "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin",
            f"SSL_CERT_FILE=/{staging.CERTIFICATES}",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
        ],
        "Entrypoint": [f"/{staging.COMMAND}"],
        "Cmd": ["operator"],
        "WorkingDir": "/",
        "Labels": _labels(origin),
    }


def _labels(origin: Origin) -> dict[str, str]:
    prefix = "org.opencontainers.image"
    revision = {f"{prefix}.revision": origin.revision} if origin.revision else {}
    return {
        f"{prefix}.title": NAME,
        f"{prefix}.description": "Kubernetes operator for TFJobs, MPIJobs, JAXJobs and SharePods",
        f"{prefix}.source": SOURCE,
        f"{prefix}.version": __version__,
        f"{prefix}.licenses": "Apache-2.0",
        f"{prefix}.created": origin.created,
        **revision,
    }


def _write(output: Path, layout: Path, images: Mapping[str, Image]) -> Result:
    digest = write_layout(layout, images, NAME, __version__)
    archives = []
    for architecture, image in images.items():
        stem = f"{NAME}-{__version__}-linux-{architecture}"
        archive = output / f"{stem}.tar"
        write_archive(archive, layout, image, NAME, __version__)
        archives.append(archive)
        (output / f"{stem}.spdx.json").write_bytes(image.sbom)
    return Result(layout, digest, images, archives)


def describe(result: Result, sizes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield the lines that are printed, with the compressed and the unpacked size of each image in bytes."""
    yield f"{result.layout}: {NAME}:{__version__} {result.digest}"
    for archive, (architecture, (compressed, unpacked)) in zip(result.archives, sizes.items(), strict=True):
        digest = result.images[architecture].manifest["digest"]
        yield f"{archive}: {compressed / 1e6:.0f} MB, unpacked {unpacked / 1e6:.0f} MB, {digest}"
