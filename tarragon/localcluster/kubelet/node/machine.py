"""What this machine has: CPUs, memory, disk, and the GPUs that nvidia-smi lists."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.resources import CPU, EPHEMERAL_STORAGE, GPU_MEMORY_LABEL, MEMORY, NVIDIA_GPU, PODS
from tarragon.kube.scheduling.gpu_shares import GPU_PRODUCT_LABEL

MAX_PODS = 500


def machine_capacity(folder: Path, gpus: Sequence[str] = ()) -> dict[str, int]:
    """The capacity of this machine: what this process may use, and the given GPUs. The node's files are in `folder`."""
    offered = {
        CPU: available_cpus() * 1000,
        MEMORY: available_memory() * 1000,
        EPHEMERAL_STORAGE: file_system_size(folder) * 1000,
        PODS: MAX_PODS * 1000,
    }
    return offered | ({NVIDIA_GPU: len(gpus) * 1000} if gpus else {})


def available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """The machine's memory in bytes, or the limit of this process's control group if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or `max`
            continue
    return min(limits)


def file_system_size(folder: Path) -> int:
    """The size in bytes of the file system that the folder is on, or will be once it exists."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            file_system = os.statvfs(each)
            return file_system.f_blocks * file_system.f_frsize
    return 0


_GPU = re.compile(r"^\d+, (GPU-[0-9a-f-]+), (.*), ([^,\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MachineGpus:
    """The models of a machine's GPUs by UUID, in PCI bus order; `allowed` are the UUIDs that this process may use.

    `memory` is in MiB, for GPUs with memory of their own.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)

    def labels(self, some: Sequence[str]) -> dict[str, str]:
        """The labels of a node with these GPUs, as NVIDIA's GPU feature discovery sets them: product and memory.

        There is no product for several models. The memory is that of the smallest GPU, so that none is oversold.
        """
        labels = {}
        known = [identity for identity in some if identity in self.models]
        models = {self.models[identity] for identity in known}
        if len(models) == 1:
            labels[GPU_PRODUCT_LABEL] = re.sub(r"[^A-Za-z0-9_.-]+", "-", models.pop())
        if known and all(identity in self.memory for identity in known):
            labels[GPU_MEMORY_LABEL] = str(min(self.memory[identity] for identity in known))
        return labels


def detect_gpus(environment: Mapping[str, str]) -> MachineGpus:
    """The machine's NVIDIA GPUs, as nvidia-smi lists them; CUDA_VISIBLE_DEVICES limits those allowed. Blocks."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return MachineGpus()
    return read_gpus(listed.stdout, environment.get("CUDA_VISIBLE_DEVICES")) if not listed.returncode else MachineGpus()


def read_gpus(listed: str, allowed: str | None) -> MachineGpus:
    """The GPUs of nvidia-smi's list, of which CUDA_VISIBLE_DEVICES allows some. Other lines are ignored."""
    found = [match.groups() for match in _GPU.finditer(listed)]
    models = {identity: model for identity, model, _ in found}
    # A GPU that uses the machine's memory has "[N/A]".
    memory = {identity: int(amount) for identity, _, amount in found if amount.isascii() and amount.isdigit()}
    return MachineGpus(models, visible_devices(list(models), allowed), memory)


def visible_devices(found: Sequence[str], allowed: str | None) -> tuple[str, ...]:
    """The visible devices by CUDA's rules: numbers or prefixes of UUIDs; the first invalid entry ends the list."""
    if allowed is None:
        return tuple(found)
    selected: list[str] = []
    for word in (part.strip() for part in allowed.split(",")):
        matches = [found[int(word)]] if word.isdigit() and int(word) < len(found) else []
        matches = matches or [identity for identity in found if word and identity.startswith(word)]
        if not matches:
            break
        selected += matches[:1]
    return tuple(selected)
