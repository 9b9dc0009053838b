"""The variables that limit what a process uses of a GPU that it shares."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tarragon.localcluster.kubelet.devices import gpu_limits
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart
from tarragon.localcluster.kubelet.images.images import Environment
from tarragon.localcluster.kubelet.pod.environment import MachineEnvironment, shared_gpu_variables
from tests.localcluster.kubelet.gpu_pods import GI

CARD = 16 * GI


@pytest.fixture
def pipes() -> Iterator[Path]:
    """A folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


PART = VgpuPart(pod="default/p", number=0, device="GPU-a", request=250, limit=500, memory=4 * GI)


def variables(
    *, caller: Mapping[str, str], image: Mapping[str, str] | None = None, declared: Mapping[str, str] | None = None
) -> dict[str, str]:
    machine = MachineEnvironment(caller=caller, cpus=1, allocatable={}, gpu_memory=CARD)
    environment = Environment(folder=Path("/nowhere"), env=image or {})
    return shared_gpu_variables(PART, machine, environment, declared or {})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("TF_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_GPU_ALLOW_GROWTH"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    ],
)
def test_variables_of_the_user_are_kept(theirs: str, ours: str, tmp_path: Path) -> None:
    caller = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}

    assert ours in variables(caller=caller)
    assert ours not in variables(caller=caller, declared={theirs: "x"})
    assert ours not in variables(caller=caller, image={theirs: "x"})


def test_a_pod_without_a_share_has_no_limits() -> None:
    machine = MachineEnvironment(caller={}, cpus=1, allocatable={}, gpu_memory=CARD)

    assert shared_gpu_variables(None, machine, Environment(folder=Path("/nowhere")), {}) == {}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch-2.11.0+cu130.dist-info", (2, 11)),
        ("torch-2.9.1.dist-info", (2, 9)),
        ("torchvision-0.26.0.dist-info", None),
        ("torch-x.dist-info", None),
    ],
)
def test_the_version_of_pytorch_is_that_of_the_environment(
    tmp_path: Path, name: str, version: tuple[int, int] | None
) -> None:
    (tmp_path / "lib/python3.12/site-packages" / name).mkdir(parents=True)

    assert gpu_limits.torch_version(tmp_path) == version


# ----------------------------------------------------------------------------------------------------------- CUDA MPS


def test_without_an_mps_daemon_there_are_no_variables_for_it(pipes: Path) -> None:
    caller = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}

    assert not any(name.startswith("CUDA_MPS") for name in variables(caller=caller))


def test_an_mps_daemon_is_found_by_its_socket_while_it_listens(pipes: Path) -> None:
    caller = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipes / "control"))
        daemon.listen(1)
        found = variables(caller=caller)
        again = [gpu_limits.mps_pipe_directory(caller) for _ in range(9)]

    assert found["CUDA_MPS_PIPE_DIRECTORY"] == str(pipes)
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert set(again) == {pipes}
    assert gpu_limits.mps_pipe_directory(caller) is None


def test_an_mps_daemon_with_another_type_of_socket_is_found(pipes: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(pipes / "control"))
        daemon.listen(1)

        assert gpu_limits.mps_pipe_directory({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}) == pipes


def test_an_mps_daemon_is_found_by_its_pipe_while_it_reads(pipes: Path) -> None:
    caller = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    os.mkfifo(pipes / "control")
    before = gpu_limits.mps_pipe_directory(caller)
    reader = os.open(pipes / "control", os.O_RDONLY | os.O_NONBLOCK)
    found = gpu_limits.mps_pipe_directory(caller)
    os.close(reader)

    assert (before, found, gpu_limits.mps_pipe_directory(caller)) == (None, pipes, None)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_other_files_are_not_an_mps_daemon(pipes: Path, kind: str) -> None:
    if kind == "file":
        (pipes / "control").touch()
    else:
        (pipes / "control").mkdir()

    assert gpu_limits.mps_pipe_directory({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}) is None
