"""Jobs with GPUs, whole ones or shares, on the hollow nodes of a real control plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tarragon.base.resources import NVIDIA_GPU
from tests.real.scene import Scene

Json = dict[str, Any]


def training(
    name: str, workers: int, *, gpus: int = 0, seconds: float | None = None, share: Mapping[str, str] | None = None
) -> Json:
    """A TFJob whose workers have whole GPUs, or a share of one in the form of KubeShare 1."""
    notes = {f"kubeshare/gpu_{key}": value for key, value in (share or {}).items()}
    if seconds is not None:
        notes |= {"tarragon.dev/hollow-seconds": f"{seconds:.1f}", "tarragon.dev/hollow-stop-seconds": "0.3"}
    limits = {"limits": {NVIDIA_GPU: gpus}} if gpus else {}
    needs: Json = {"requests": {"cpu": "500m", "memory": "1Gi"}, **limits}
    container = {"name": "tensorflow", "image": "i", "resources": needs}
    worker = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
    server = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "cleanPodPolicy": "All",
            "tfReplicaSpecs": {
                "PS": {"replicas": 1, "restartPolicy": "OnFailure", "template": server},
                "Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": worker},
            },
        },
    }


async def until_succeeded(scene: Scene, names: Sequence[str], number: int) -> None:
    """Wait until so many of the jobs have succeeded."""
    await scene.until(lambda: sum(scene.state(name) == "Succeeded" for name in names) >= number, patience=150)
