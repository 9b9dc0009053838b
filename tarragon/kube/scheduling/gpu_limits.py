"""Limits on what a process uses of a GPU that it shares, as variables that frameworks and CUDA MPS read.

Without MPS these are requests to the program: nothing enforces them. They apply to each process.
"""

from __future__ import annotations

from collections.abc import Mapping

MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
TORCH_WITH_FRACTION = (2, 10)
"""The first PyTorch whose allocator has the option `per_process_memory_fraction`. Earlier ones end with an error."""
_JAX = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_TORCH = "PYTORCH_ALLOC_CONF"
_OTHER_NAMES = {
    _JAX: "XLA_CLIENT_MEM_FRACTION",  # jaxlib refuses to start with both
    _TORCH: "PYTORCH_CUDA_ALLOC_CONF",  # the older name, which PyTorch would ignore
}
_DIGITS = 10_000
CONTEXT_BYTES = 640 * 2**20
"""What the CUDA context of a process takes beside what its framework allocates, at most: 515 to 610 MiB were measured
on an H200. MPS counts it, too: JAX that allocates all of its limit at the start fails there again and again, and ends
with SIGABRT.
"""
_LEAST_PART = 4
"""A small share leaves a program this part of it nevertheless."""


def memory_variables(memory: int, gpu_memory: int, torch: tuple[int, int] | None = None) -> dict[str, str]:
    """Return the limits for frameworks on a GPU with `gpu_memory` bytes, of which `memory` are the process's.

    Either is 0 if it is not known. `torch` is PyTorch's version, None if that is not known, or there is none.
    """
    # TensorFlow has no variable for a limit: with this one it takes memory as it needs it, and not all at once.
    variables = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if not (memory and gpu_memory):
        return variables
    fraction = _fraction(max(memory - CONTEXT_BYTES, memory // _LEAST_PART), gpu_memory)
    variables[_JAX] = fraction
    if torch is not None and torch >= TORCH_WITH_FRACTION:
        variables[_TORCH] = f"per_process_memory_fraction:{fraction}"
    return variables


def mps_variables(limit: int, memory: int, pipes: str) -> dict[str, str]:
    """Return the limits for clients of the MPS daemon with this pipe directory; none without a daemon.

    `limit` is in thousandths of the GPU, `memory` in bytes, 0 if that is not known.
    """
    if not pipes:
        return {}
    variables = {MPS_PIPES: pipes, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{limit / 10:g}"}
    if mebibytes := memory // 2**20:
        # The process sees one device, which is its number 0.
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={mebibytes}M"
    return variables


def without_those_of_user(variables: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the user has not set under this name or another one."""
    return {name: value for name, value in variables.items() if name not in user and _OTHER_NAMES.get(name) not in user}


def _fraction(part: int, whole: int) -> str:
    """Return a decimal fraction, rounded down, so that the processes of a GPU don't get more than it has."""
    digits = min(max(part * _DIGITS // whole, 1), _DIGITS)
    return f"{digits / _DIGITS:.4f}".rstrip("0").rstrip(".")
