"""Checks that this machine can run training jobs."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.environment import cluster_environment, has_software, installed_versions, is_same_folder
from tarragon.cli.targets.extras import LOCAL
from tarragon.frameworks.image_software import ImageSoftware
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.images import Environment, current_environment

_GIB = 2**30
_MIB_PER_GIB = 1024
_GIB_PER_REPLICA = 0.5
"""GiB of memory that one TensorFlow process uses (measured)."""
_MIN_DISK_GIB = 2
_PORT_SAMPLE = 50


def check_local_machine(place: Home) -> Iterator[Finding]:
    environment = cluster_environment(place)
    yield _python()
    yield from _libraries(environment)
    yield from _home(place)
    yield from _extra()
    yield _cluster(place, environment)
    yield _images(place, environment)
    yield _cpus()
    yield _memory()
    yield _ports()
    yield _gpus()
    yield check_gpu_sharing()
    yield _kubectl()


def _python() -> Finding:
    text = f"{platform.python_version()} ({sys.executable})"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("ok", "Python", text)
    return Finding("warning", "Python", text, "TensorFlow has wheels for 3.11 to 3.13")


def _libraries(environment: Environment) -> Iterator[Finding]:
    if not environment.has_python:
        text = f"{environment.folder}, the environment of replicas, has no Python any more"
        yield Finding(
            "error", "replicas", text, "`tarragon down`, then run again: the cluster starts in this environment"
        )
        return
    for library in dict.fromkeys(library for each in FRAMEWORKS for library in each.image_software):
        if has_software(environment, library):
            yield Finding("ok", library.title, _place(library, environment))
        else:
            yield Finding("ok", library.title, f"not installed in {environment.folder}; {_needed_by(library)}")


def _needed_by(library: ImageSoftware) -> str:
    users = "scripts that import it" if library.module else f"jobs that run {library.program}"
    return f"only {users} need it"


def _extra() -> Iterator[Finding]:
    if missing := LOCAL.missing:
        text = f"cannot run here: Python does not find {joined(missing)}"
        yield Finding("error", "local", text, LOCAL.install_command)


def _place(library: ImageSoftware, environment: Environment) -> str:
    known = _version(environment, *library.packages)
    program = environment.bin_folder / library.program
    if library.module or program.is_file():
        return f"{known} in {environment.folder}"
    return f"{shutil.which(library.program)}"


def _version(environment: Environment, *packages: str) -> str:
    if not is_same_folder(environment.folder, current_environment().folder):
        installed = installed_versions(environment)
        return next((installed[package] for package in packages if package in installed), "unknown version")
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown version"


def _home(place: Home) -> Iterator[Finding]:
    try:
        place.prepare()
    except TarragonError as error:
        yield Finding("error", "home", f"{error.summary}: {error.cause}", error.remedy)
        return
    yield Finding("ok", "home", str(place.folder))
    free = shutil.disk_usage(place.folder).free / _GIB
    if free < _MIN_DISK_GIB:
        yield Finding(
            "warning",
            "disk",
            f"{free:.1f} GiB free",
            "free disk space for checkpoints, or set TARRAGON_HOME to another disk",
        )
    else:
        yield Finding("ok", "disk", f"{free:.0f} GiB free")


def _cluster(place: Home, environment: Environment) -> Finding:
    from tarragon.localcluster.daemon.background import find_server
    from tarragon.localcluster.home.lock import read_server

    server = asyncio.run(find_server(place))
    if server is not None:
        text = f"running: process {server.pid} at {server.url}, version {server.version}"
        own = current_environment().folder
        if is_same_folder(environment.folder, own):
            return Finding("ok", "cluster", text)
        return Finding(
            "warning",
            "cluster",
            f"{text}, of another installation: replicas run in {environment.folder}, not in {own}",
            "`tarragon down` stops it and its pods; the next `tarragon run` starts one of this installation",
        )
    presence = read_server(place)
    if presence is not None and presence.is_running():
        return Finding("error", "cluster", f"process {presence.pid} does not answer", "stop it with `tarragon down`")
    return Finding("ok", "cluster", "not running; `tarragon run` and other commands start it")


def _images(place: Home, environment: Environment) -> Finding:
    from tarragon.localcluster.kubelet.images.image_file import read_image_file

    if not place.images.exists():
        return Finding("ok", "images", f"no {place.images}: every image maps to {environment.folder}")
    found, problems = read_image_file(place.images)
    if problems:
        return Finding("error", "images", f"{place.images}: {problems[0]}", "correct the file")
    missing = [pattern for pattern, environment in found.rules if not environment.folder.is_dir()]
    if missing:
        return Finding(
            "error", "images", f"{place.images}: {missing[0]} maps to a folder that does not exist", "correct the file"
        )
    return Finding("ok", "images", f"{place.images} with {count(len(found.rules), 'image')}")


def _cpus() -> Finding:
    return Finding("ok", "CPUs", str(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1))


def _memory() -> Finding:
    free = _available_memory()
    if free is None:
        return Finding("ok", "memory", "free memory is unknown on this system")
    replicas = count(int(free / _GIB / _GIB_PER_REPLICA), "TensorFlow replica")
    text = f"{free / _GIB:.1f} GiB free, enough for about {replicas}"
    if free < 2 * _GIB_PER_REPLICA * _GIB:
        return Finding("warning", "memory", text, "close other programs, or use fewer replicas")
    return Finding("ok", "memory", text)


def _available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(facts["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in facts else None


def _ports() -> Finding:
    """Check a sample of the ports: each replica needs one."""
    from tarragon.localcluster.kubelet.network.port_claims import candidate_ports, is_free

    ports = candidate_ports()
    sample = ports[:: max(1, len(ports) // _PORT_SAMPLE)][:_PORT_SAMPLE]
    free = sum(map(is_free, sample))
    text = f"{free} of {len(sample)} checked ports between {ports[0]} and {ports[-1]} are free"
    if free < len(sample) // 2:
        return Finding("warning", "ports", text, "stop the programs that use them (`ss -ltnp`): each replica needs one")
    return Finding("ok", "ports", text)


def _gpus() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return Finding("ok", "GPUs", "none found (no nvidia-smi); jobs that ask for one need --cpu-only here")
    return Finding("ok", "GPUs", "nvidia-smi found: `nvidia-smi -L` lists them")


def check_gpu_sharing() -> Finding:
    """Say what keeps pods that share a GPU to their parts of it."""
    from tarragon.localcluster.kubelet.devices.gpu_limits import mps_pipe_directory
    from tarragon.localcluster.kubelet.node.machine import detect_gpus

    gpus = detect_gpus(os.environ)
    if not gpus.allowed:
        text = "no GPU to share; `tarragon docs howto/gpus` shows how nodes pretend to have some"
        return Finding("ok", "GPU sharing", text)
    sizes = sorted({gpus.memory[identity] for identity in gpus.allowed if identity in gpus.memory})
    memory = joined([f"{mebibytes / _MIB_PER_GIB:.1f}".removesuffix(".0") for mebibytes in sizes])
    cards = f"{count(len(gpus.allowed), 'GPU')} of {f'{memory} GiB' if memory else 'unknown memory'}"
    pipes = mps_pipe_directory(os.environ)
    if pipes is not None:
        return Finding("ok", "GPU sharing", f"{cards}; CUDA MPS ({pipes}) limits programs to their shares")
    text = (
        f"{cards}; no CUDA MPS daemon, so shares are only advice to programs (`nvidia-cuda-mps-control -d` starts one)"
    )
    return Finding("ok", "GPU sharing", text)


def _kubectl() -> Finding:
    found = shutil.which("kubectl")
    if found is None:
        return Finding("ok", "kubectl", "not on PATH; tarragon does not need it")
    return Finding("ok", "kubectl", f"{found}; export KUBECONFIG=$(tarragon kubeconfig)")
