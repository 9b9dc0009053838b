"""The checkpoint files of a pod, which survive a killed kubelet: written before it acts, read when it restarts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec

from tarragon.base.resources import NVIDIA_GPU
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base.files import read_json, write_bytes, write_json
from tarragon.localcluster.kubelet.base.layout import PodFolder
from tarragon.localcluster.kubelet.base.pod_lifecycle import Backoff, ExitStatus, ProbeStatus, Run
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tarragon.localcluster.kubelet.shim.shim_client import ShimState

LOST_REASON = "ContainerStatusUnknown"
LOST_MESSAGE = "the process that supervised the container is gone and left no record of how the container ended"


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The checkpoint of one container. Times are in seconds since 1970, 0 for none.

    `ended` is when the kubelet saw run `number` end. `delay` and `since` are the back-off. `fitness` belongs to run
    `attended`. `environment` is the folder that the image mapped to at the last start, and `threads` the share of the
    cores that the container got then, 0 for none.
    """

    number: int = -1
    ended: float = 0.0
    delay: float = 0.0
    since: float = 0.0
    attended: int = -1
    fitness: ProbeStatus = ProbeStatus()
    environment: str = ""
    threads: int = 0

    def ended_at(self, number: int) -> dt.datetime | None:
        return from_timestamp(self.ended) if self.ended and number == self.number else None

    @property
    def backoff(self) -> Backoff | None:
        return Backoff(self.delay, from_timestamp(self.since)) if self.since else None


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The checkpoint of one pod. `volumes` are folders by volume name, None before they are created.

    `devices` are by container and resource. `gpus` are NVIDIA's, as written by earlier versions. Those of a pod with a
    part of a vGPU include its GPU. A pod that `awaits_admission` holds nothing yet.
    """

    started: float
    awaits_admission: bool = False
    requests: dict[str, int] = {}
    gpus: dict[str, tuple[str, ...]] = {}
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    vgpu: VgpuPart | None = None
    volumes: dict[str, str] | None = None
    verdict_reason: str = ""
    verdict_message: str = ""
    containers: dict[str, ContainerRecord] = {}

    @property
    def verdict(self) -> PodFailure | None:
        if not self.verdict_reason:
            return None
        return PodFailure(reason=self.verdict_reason, message=self.verdict_message)

    def devices_of(self, container: str) -> dict[str, tuple[str, ...]]:
        legacy = self.gpus.get(container)
        return {**({NVIDIA_GPU: legacy} if legacy else {}), **self.devices.get(container, {})}

    @property
    def all_devices(self) -> dict[str, dict[str, tuple[str, ...]]]:
        return {name: self.devices_of(name) for name in {**self.gpus, **self.devices}}

    def container(self, name: str) -> ContainerRecord:
        return self.containers.get(name) or ContainerRecord()

    def with_container(self, name: str, record: ContainerRecord) -> PodRecord:
        return msgspec.structs.replace(self, containers={**self.containers, name: record})


def from_timestamp(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def _manifest(folder: PodFolder) -> Path:
    return folder.path / "manifest.json"


def save_manifest(folder: PodFolder, pod: Pod) -> None:
    """Save the pod, for the case that it is deleted while no kubelet runs."""
    create_private_folder(folder.path)
    write_bytes(_manifest(folder), encode(pod))


def load_manifest(folder: PodFolder) -> Pod | None:
    try:
        return decode(_manifest(folder).read_bytes(), Pod)
    except (OSError, msgspec.MsgspecError):
        return None


def save(folder: PodFolder, record: PodRecord) -> None:
    create_private_folder(folder.path)
    write_json(folder.checkpoint, record)


def load(folder: PodFolder) -> PodRecord | None:
    return read_json(folder.checkpoint, PodRecord)


def allocated_devices(node: Path, resource: str) -> list[str]:
    """The devices allocated to pods of a node, by their checkpoints. `node` is the node's folder."""
    held: dict[str, None] = {}
    for folder in sorted((node / "pods").glob("[!.]*")):
        record = load(PodFolder(folder))
        for allocated in record.all_devices.values() if record is not None else ():
            held |= dict.fromkeys(allocated.get(resource, ()))
    return list(held)


def run_from_state(number: int, state: ShimState | None, message: str = "") -> Run:
    """The run that a shim's state describes; `message` is its termination message."""
    if state is None:
        return Run(number=number, identity="")
    started = _moment_of(state.started)
    if not state.has_ended:
        return Run(number=number, identity=state.id, started=started if state.phase == "running" else None)
    outcome = ExitStatus(
        code=state.code,
        signal=state.signal,
        reason=_reason(state),
        message=state.error or message or (LOST_MESSAGE if state.lost else ""),
        started=started,
        finished=_moment_of(state.finished) or from_timestamp(0),
        received_sigterm=state.stopped,
        was_lost=state.lost,
    )
    return Run(number=number, identity=state.id, started=started, outcome=outcome)


def _reason(state: ShimState) -> str:
    if state.lost:
        return LOST_REASON
    if state.error:
        return "StartError"
    return "Completed" if state.code == 0 else "Error"


def _moment_of(nanoseconds: int) -> dt.datetime | None:
    return from_timestamp(nanoseconds / 1_000_000_000) if nanoseconds else None
