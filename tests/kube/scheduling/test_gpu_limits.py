"""The variables that limit what a process uses of a GPU that it shares."""

from __future__ import annotations

import pytest

from tarragon.kube.scheduling.gpu_limits import CONTEXT_BYTES, memory_variables, mps_variables, without_those_of_user

GI = 2**30
CARD = 16 * GI
TORCH = (2, 10)


def test_frameworks_are_told_their_part_of_the_memory_without_the_context_of_the_process() -> None:
    assert memory_variables(4 * GI + CONTEXT_BYTES, CARD, TORCH) == {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25",
        "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.25",
    }


def test_a_share_of_less_than_a_context_leaves_the_program_a_quarter() -> None:
    assert memory_variables(512 * 2**20, CARD)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.0078"


@pytest.mark.parametrize("torch", [None, (1, 13), (2, 9)])
def test_a_pytorch_that_does_not_know_the_limit_is_left_alone(torch: tuple[int, int] | None) -> None:
    assert "PYTORCH_ALLOC_CONF" not in memory_variables(4 * GI, CARD, torch)


@pytest.mark.parametrize(("memory", "card"), [(4 * GI, 0), (0, 0), (0, CARD)])
def test_without_the_memory_of_the_gpu_there_is_no_limit(memory: int, card: int) -> None:
    assert memory_variables(memory, card, TORCH) == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


@pytest.mark.parametrize(("memory", "fraction"), [(CARD, "1"), (CARD // 3, "0.3333"), (CARD * 2 // 3, "0.6666")])
def test_a_fraction_is_rounded_down_and_never_zero(memory: int, fraction: str) -> None:
    of_frameworks = memory_variables(memory + CONTEXT_BYTES, CARD)
    assert of_frameworks["XLA_PYTHON_CLIENT_MEM_FRACTION"] == fraction
    assert memory_variables(1, CARD)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.0001"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("PYTORCH_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    ],
)
def test_variables_of_the_user_are_kept_whichever_of_their_names_they_have(theirs: str, ours: str) -> None:
    variables = memory_variables(4 * GI, CARD, TORCH)

    assert ours in variables
    assert ours not in without_those_of_user(variables, {theirs: "x"})


def test_mps_limits_threads_and_memory_of_the_one_device_that_a_process_sees() -> None:
    assert mps_variables(505, 3041 * 2**20 + 5, "/pipes") == {
        "CUDA_MPS_PIPE_DIRECTORY": "/pipes",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3041M",
    }


def test_mps_does_not_limit_memory_of_which_nothing_is_known() -> None:
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in mps_variables(500, 0, "/pipes")


def test_without_an_mps_daemon_there_are_no_variables_for_it() -> None:
    assert mps_variables(500, GI, "") == {}
