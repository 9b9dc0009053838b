"""How pods share the GPUs of a node, which differs from node to node."""

from __future__ import annotations

import re
from enum import StrEnum

from tarragon.kube.core import Node

GPU_SHARING_LABEL = "tarragon.dev/gpu-sharing"
"""The label of a node that says how its GPUs are shared: one of `GpuSharing`. Without it, the operator decides."""
GPU_ANCHOR_LABEL = "tarragon.dev/gpu-anchor"
"""The label `"true"` of the pods that hold a whole GPU for those that share it."""
MPS_LABEL = "tarragon.dev/mps"
"""The label `"true"` of a node on which NVIDIA's MPS control daemon runs for all of its GPUs."""
MPS_PIPES_ANNOTATION = "tarragon.dev/mps-pipe-directory"
"""The annotation of such a node with the daemon's pipe directory, if it is not the usual one."""
HAMI_ANNOTATION = "hami.io/node-nvidia-register"
"""The annotation in which HAMi's device plugin reports the GPUs of a node."""
_USUAL_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f-]{1,64}")


class GpuSharing(StrEnum):
    """How the GPUs of a node are shared."""

    KUBELET = "kubelet"
    """The kubelet knows vGPUs, and gives each of them a GPU: that of a process node."""
    ANCHOR = "anchor"
    """The device plugin knows only whole GPUs. A pod holds one for each vGPU, and the pods that share it name it."""
    HAMI = "hami"
    """HAMi's device plugin hands out what HAMi's scheduler has chosen. A pod names the only GPUs that it may choose."""
    NONE = "none"
    """They are not shared."""


def gpu_sharing(node: Node) -> GpuSharing:
    """Return how the GPUs of the node are shared. A value of the label that is not known means that they are not."""
    named = node.metadata.labels.get(GPU_SHARING_LABEL)
    if named is None:
        # HAMi's device plugin hands out no GPU that its own scheduler has not chosen.
        return GpuSharing.HAMI if HAMI_ANNOTATION in node.metadata.annotations else GpuSharing.ANCHOR
    return GpuSharing(named) if named in {*GpuSharing} else GpuSharing.NONE


def mps_pipe_directory(node: Node) -> str:
    """Return the pipe directory of the node's MPS control daemon; empty if no daemon runs there."""
    if node.metadata.labels.get(MPS_LABEL) != "true":
        return ""
    return node.metadata.annotations.get(MPS_PIPES_ANNOTATION) or _USUAL_PIPES


def is_gpu_uuid(text: str) -> bool:
    """Whether this is the UUID of a GPU, or of a part of one (MIG), as NVIDIA writes them."""
    return _UUID.fullmatch(text) is not None
