"""KubeShare's constraints on which pods may share a GPU.

A pod marks the vGPU that it shares. Marks are amounts of resources of their own: they add up over the pods of a node,
and are subtracted when one leaves, as all other amounts. Each is made so that the sum still tells what has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from tarragon.base.resources import NVIDIA_GPU, Resources

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T", int, "npt.NDArray[np.int64]")

GPU_ID, AFFINITY, ANTI_AFFINITY, EXCLUSION = "GPUID", "sched_affinity", "sched_anti-affinity", "sched_exclusion"
"""KubeShare's annotations, without `kubeshare/`."""
_HASH_BYTES = 5
_COUNT_BITS = 10
"""A vGPU has at most 1,000 users."""
_COUNT = (1 << _COUNT_BITS) - 1
_VGPU_BITS = 2
"""One for the pod, and one so that a second pod on the same vGPU, which must not be, does no harm to the next vGPU."""
_VGPU = (1 << _VGPU_BITS) - 1
_VGPUS = 30
"""The number of vGPUs whose bits one mark has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstraints:
    """What a pod demands of the others that share its GPU. Empty values demand nothing, save for `exclusion`."""

    gpu_id: str = ""
    """kubeshare/GPUID: the pods of a node with the same one share one GPU. The first of them gets an unused one."""
    affinity: str = ""
    """kubeshare/sched_affinity: only a GPU of pods with the same value, or an unused one."""
    anti_affinity: str = ""
    """kubeshare/sched_anti-affinity: no GPU of a pod with the same value."""
    exclusion: str = ""
    """kubeshare/sched_exclusion: all pods of a GPU have the same value, which may be empty."""

    @property
    def names(self) -> list[str]:
        """The annotations by which they are set. Without an exclusion, those of others matter all the same."""
        values = {
            GPU_ID: self.gpu_id,
            AFFINITY: self.affinity,
            ANTI_AFFINITY: self.anti_affinity,
            EXCLUSION: self.exclusion,
        }
        return [f"kubeshare/{name}" for name, value in values.items() if value]

    @property
    def claims(self) -> int:
        """How many of its values a GPU can only get while it is unused. Of pods that are to share one, those with more
        of them come first.
        """
        return bool(self.gpu_id) + bool(self.affinity)

    def marks(self, number: int, request: int) -> Resources:
        """Return the marks of a pod with this request, in thousandths, on the vGPU with this number."""
        marks: dict[str, int] = {}
        if self.gpu_id:
            marks[gpu_id_mark(number)] = _counted(self.gpu_id)
        if self.affinity:
            marks[affinity_mark(number)] = _counted(self.affinity)
        if self.exclusion:
            marks[exclusion_mark(number)] = _hash(self.exclusion) * request
        if self.anti_affinity:
            marks[anti_affinity_mark(self.anti_affinity, number)] = 1 << _bit(number)
        return marks

    def permit(self, number: int, used: T, marks: Callable[[str], T]) -> T:
        """Whether they permit to join the pods on the vGPU with this number.

        `used` is the sum of the requests there, in thousandths, and `marks` returns the sum of a mark. All are numbers,
        or arrays with an element for each of several nodes, as the result is.
        """
        permitted: T = marks(exclusion_mark(number)) == used * (_hash(self.exclusion) if self.exclusion else 0)
        if self.gpu_id:
            permitted = permitted & self.has_gpu_id(number, marks)
        if self.affinity:
            permitted = permitted & self.has_affinity(number, marks)
        if self.anti_affinity:
            bits = marks(anti_affinity_mark(self.anti_affinity, number)) >> _bit(number)
            permitted = permitted & ((bits & _VGPU) == 0)
        # Of a vGPU that nobody uses, marks mean nothing: those of an edited job are not those that its pods have left.
        return (used <= 0) | permitted

    def has_gpu_id(self, number: int, marks: Callable[[str], T]) -> T:
        """Whether the vGPU is the one with their GPUID."""
        return _is_marked(marks(gpu_id_mark(number)), self.gpu_id)

    def has_affinity(self, number: int, marks: Callable[[str], T]) -> T:
        """Whether pods with their affinity share the vGPU."""
        return _is_marked(marks(affinity_mark(number)), self.affinity)


UNCONSTRAINED = GpuConstraints()


def closed(amounts: Resources, number: int) -> Resources:
    """Return the amounts that a pod needs of a vGPU, with marks that keep all others from joining it.

    It reserves a vGPU for a pod with a GPUID or an affinity: others must neither join a pod that is not there yet, nor
    come before it, as it can only open an unused GPU. The amounts of other pods are returned unchanged.
    """
    claims = gpu_id_mark(number), affinity_mark(number)
    if not any(name in amounts for name in claims):
        return amounts
    others = {name: amount for name, amount in amounts.items() if name not in claims}
    exclusion = exclusion_mark(number)
    return {**others, exclusion: others.get(exclusion, 0) + 1}


def gpu_id_mark(number: int) -> str:
    """The name of the resource by which pods mark a vGPU with their GPUID: of each the hash, and 1 to count them."""
    return f"{NVIDIA_GPU}/{number}/gpu-id"


def affinity_mark(number: int) -> str:
    """The same for their affinity. A vGPU never has two of them, as only an unused one can get a new one."""
    return f"{NVIDIA_GPU}/{number}/affinity"


def exclusion_mark(number: int) -> str:
    """The same for their exclusion: of each the hash times its request, so that the sum tells whether all have it."""
    return f"{NVIDIA_GPU}/{number}/exclusion"


def anti_affinity_mark(value: str, number: int) -> str:
    """The same for an anti-affinity: a bit for each vGPU of the node, which at most one pod of each value shares."""
    return f"{NVIDIA_GPU}/anti-affinity/{_hash(value):010x}/{number // _VGPUS}"


def mark_names(vgpus: int, anti_affinities: Iterable[str]) -> list[str]:
    """Return the names of all marks on nodes with so many vGPUs, whose pods have these values of anti-affinity."""
    of_vgpus = [name(number) for number in range(vgpus) for name in (gpu_id_mark, affinity_mark, exclusion_mark)]
    of_values = [anti_affinity_mark(each, number) for each in anti_affinities for number in range(0, vgpus, _VGPUS)]
    return [*of_vgpus, *of_values]


def is_mark(name: str) -> bool:
    """Whether a resource is a mark."""
    _, prefix, rest = name.partition(f"{NVIDIA_GPU}/")
    first, _, last = rest.partition("/")
    return bool(prefix) and (first == "anti-affinity" or last in {"gpu-id", "affinity", "exclusion"})


def _is_marked(mark: T, value: str) -> T:
    is_marked: T = (mark > 0) & (mark == (mark & _COUNT) * _counted(value))
    return is_marked


def _bit(number: int) -> int:
    return number % _VGPUS * _VGPU_BITS


def _counted(value: str) -> int:
    return _hash(value) << _COUNT_BITS | 1


@lru_cache(maxsize=4096)
def _hash(value: str) -> int:
    """A number from 1 to 2 ** 40, different for different values for all practical purposes."""
    return 1 + int.from_bytes(blake2b(value.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest(), "big")
