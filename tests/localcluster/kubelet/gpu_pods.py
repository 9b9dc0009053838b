"""Builders of pods that share a GPU, with KubeShare's annotations."""

from __future__ import annotations

from typing import Any

from tarragon.localcluster.kubelet.base.spec import Pod
from tests.localcluster.kubelet.builders import pod

GI = 2**30


def shared_metadata(
    request: float, *, limit: float = 1, memory: int = 0, vgpu: int | str | None = None, **constraints: str
) -> dict[str, Any]:
    """`vgpu` is what a scheduler has chosen. Constraints are KubeShare's, such as `sched_affinity`."""
    amounts = {"gpu_request": f"{request:g}", "gpu_limit": f"{limit:g}", **({"gpu_mem": str(memory)} if memory else {})}
    annotations = {f"kubeshare/{name}": value for name, value in {**amounts, **constraints}.items()}
    return {"annotations": annotations | ({} if vgpu is None else {"tarragon.dev/vgpu": str(vgpu)})}


def sharing(name: str, request: float, *containers: dict[str, Any], **options: Any) -> Pod:
    spec = {key: options.pop(key) for key in ("initContainers",) if key in options}
    return pod(name, *containers, metadata=shared_metadata(request, **options), **spec)
