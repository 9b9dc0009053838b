"""Anchor pods: each holds a whole GPU of a node, for the pods that share it.

Where the device plugin hands out whole GPUs, a pod with a part of one requests none: it names the GPU by its UUID, in a
variable that NVIDIA's runtime reads. The anchor keeps that GPU from others, and finds out which one it is. It belongs
to its node: it goes when the node is deleted, and `kubectl drain` evicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

from tarragon.base.resources import NVIDIA_GPU
from tarragon.job.places import node_of, vgpu_of, vgpu_place
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import JsonObject
from tarragon.kube.scheduling.gpu_shares import VGPU_ANNOTATION
from tarragon.kube.scheduling.node_gpu_sharing import GPU_ANCHOR_LABEL
from tarragon.kube.scheduling.vgpu_requests import pod_vgpu

ANCHOR_CONTAINER = "gpu"
CLOSING_ANNOTATION = "tarragon.dev/gpu-anchor-closing"
"""The annotation `"true"` of an anchor that is to be deleted: no new pod gets its GPU."""
_PREFIX = "tarragon-gpu"
_MAX_NAME_LENGTH = 63
"""Longer names of pods are allowed, but not everything that makes files and host names of them can bear them."""
_DIGEST_LENGTH = 12
_USER = 65532
"""As in the operator's own image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """Where anchor pods are, and what they run."""

    namespace: str
    """The operator's own, in which no other user may create pods."""
    image: str = ""
    """An image with a POSIX shell; empty for the operator's own."""
    image_pull_secrets: Sequence[str] = ()


def anchor_name(place: str) -> str:
    """Return the name of a place's anchor: there is one name, so that there is one anchor."""
    node, number = node_of(place), vgpu_of(place)
    name = f"{_PREFIX}-{node}-{number}"
    if len(name) <= _MAX_NAME_LENGTH:
        return name
    end = f"-{sha256(node.encode()).hexdigest()[:_DIGEST_LENGTH]}-{number}"
    return f"{_PREFIX}-{node}"[: _MAX_NAME_LENGTH - len(end)].rstrip(".-") + end


def anchor_place(pod: Pod, namespace: str) -> str | None:
    """Return the place that an anchor in that namespace holds; None for any other pod.

    The label alone is no proof, because all users can set it on their pods.
    """
    if pod.metadata.namespace != namespace or pod.metadata.labels.get(GPU_ANCHOR_LABEL) != "true":
        return None
    number = pod_vgpu(pod)
    return None if number is None or not pod.spec.node_name else vgpu_place(pod.spec.node_name, number)


def build_anchor(place: str, node: Node, settings: AnchorSettings, own_image: str) -> JsonObject:
    """Return the body of a place's anchor. Requests and limits are equal, so that kubelets evict it last."""
    amounts = {"cpu": "20m", "memory": "64Mi", NVIDIA_GPU: "1"}
    secrets = settings.image_pull_secrets
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    container = {
        "name": ANCHOR_CONTAINER,
        "image": settings.image or own_image,
        "command": _command(settings),
        "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}],
        "resources": {"limits": amounts, "requests": amounts},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": anchor_name(place),
            "namespace": settings.namespace,
            # Not the name `tarragon`: Services and policies select the operator by that.
            "labels": {
                "app.kubernetes.io/name": _PREFIX,
                "app.kubernetes.io/part-of": "tarragon",
                GPU_ANCHOR_LABEL: "true",
            },
            "annotations": {VGPU_ANNOTATION: str(vgpu_of(place))},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": node.metadata.name,
            "containers": [container],
            # A new pod might get another GPU than the one that is in use.
            "restartPolicy": "Always",
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


def _command(settings: AnchorSettings) -> list[str]:
    """The operator's own image may have no shell, but it has a Python."""
    if settings.image:
        return ["sh", "-c", _program("gpu_anchor.sh")]
    return ["python3", "-I", "-S", "-c", _program("gpu_anchor.py")]


@cache
def _program(name: str) -> str:
    return (resources.files(__package__) / "programs" / name).read_text()
