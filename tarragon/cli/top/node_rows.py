"""The rows of nodes: allocatable, requested and, with metrics, used resources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tarragon.base.quantity import format_decimal
from tarragon.base.resources import CPU, MEMORY, PODS, Resources
from tarragon.cli.jobview.gpus import accelerators
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import share_of_pod
from tarragon.kube.scheduling.node_gpu_sharing import GPU_ANCHOR_LABEL
from tarragon.kube.scheduling.node_resources import allocatable_with_gpus
from tarragon.kube.scheduling.vgpu_requests import pod_request, pod_vgpu, without_gpus
from tarragon.scheduling.explain.node_gpus import with_fractions

_GI = 2**30
_MI = 2**20
_ROUNDED_FROM = 10


class VgpuPart(NamedTuple):
    """A pod's part of a vGPU, in thousandths. In this order they are listed."""

    number: int
    pod: str
    share: int


@dataclass(slots=True)
class NodeRequests:
    """The sum of the requests of the pods on each node, updated incrementally because there may be many pods. Parts of
    GPUs are fractions.
    """

    by_node: dict[str, dict[str, int]] = field(default_factory=dict)
    sharing: dict[str, dict[Key, VgpuPart]] = field(default_factory=dict)
    """The pods that share GPUs of each node."""

    def update(self, old: Pod | None, new: Pod | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None and pod.spec.node_name and not pod.is_finished:
                self._add(pod, sign)
                self._share(pod, sign)

    def _add(self, pod: Pod, sign: int) -> None:
        requested = self.by_node.setdefault(pod.spec.node_name, {})
        # An anchor holds a GPU for the pods that share it, which are counted themselves.
        is_anchor = pod.metadata.labels.get(GPU_ANCHOR_LABEL) == "true"
        request = without_gpus(pod_request(pod)) if is_anchor else pod_request(pod)
        for name, amount in with_fractions(request).items():
            requested[name] = requested.get(name, 0) + sign * amount

    def _share(self, pod: Pod, sign: int) -> None:
        share, number = share_of_pod(pod), pod_vgpu(pod)
        if share is None or number is None:
            return
        pods = self.sharing.setdefault(pod.spec.node_name, {})
        if sign > 0:
            pods[pod.metadata.key] = VgpuPart(number, pod.metadata.name, share.request)
        else:
            pods.pop(pod.metadata.key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """The row of a node: `allocatable` is allocatable, `requested` requested; `used` is empty without metrics."""

    name: str
    state: str
    allocatable: Resources
    requested: Resources
    used: Resources = field(default_factory=dict)
    sharing: Sequence[VgpuPart] = ()

    @property
    def gpus(self) -> str:
        return _ratio(format_decimal(accelerators(self.requested)), format_decimal(accelerators(self.allocatable)))

    @property
    def shared_gpus(self) -> str:
        """Who shares which GPU: `0: a-worker-0 0.5, b-worker-0 0.25; 1: c-worker-0 0.5`."""
        by_number: dict[int, list[str]] = {}
        for part in sorted(self.sharing):
            by_number.setdefault(part.number, []).append(f"{part.pod} {format_decimal(part.share)}")
        return "; ".join(f"{number}: {', '.join(pods)}" for number, pods in by_number.items())

    @property
    def pods(self) -> str:
        return _ratio(str(self.requested.get(PODS, 0) // 1000), str(self.allocatable.get(PODS, 0) // 1000))

    @property
    def cpu(self) -> str:
        return _ratio(format_cpu(self.requested.get(CPU, 0)), format_cpu(self.allocatable.get(CPU, 0)))

    @property
    def memory(self) -> str:
        return _ratio(format_bytes(self.requested.get(MEMORY, 0)), format_bytes(self.allocatable.get(MEMORY, 0)))

    @property
    def cpu_used(self) -> str:
        return format_cpu(self.used[CPU]) if CPU in self.used else "-"

    @property
    def memory_used(self) -> str:
        return format_bytes(self.used[MEMORY]) if MEMORY in self.used else "-"


def node_rows(nodes: Iterable[Node], requests: NodeRequests, usage: Mapping[str, Resources]) -> Sequence[NodeRow]:
    """Return the rows of the nodes, sorted by name."""
    return [
        NodeRow(
            name=node.metadata.name,
            state=node_state(node),
            allocatable=allocatable_with_gpus(node),
            requested=requests.by_node.get(node.metadata.name, {}),
            used=usage.get(node.metadata.name, {}),
            sharing=list(requests.sharing.get(node.metadata.name, {}).values()),
        )
        for node in sorted(nodes, key=lambda node: node.metadata.name)
    ]


def node_state(node: Node) -> str:
    """Return the node's status as kubectl prints it."""
    ready = "Ready" if node.is_ready else "NotReady"
    return f"{ready},SchedulingDisabled" if node.spec.unschedulable else ready


def format_cpu(thousandths: int) -> str:
    """Format CPUs: `4`, `0.5`, `0.04`."""
    return f"{round(thousandths / 1000, 1 if thousandths >= 1000 else 2):g}"  # noqa: PLR2004 - thousandths of one


def format_bytes(thousandths: int) -> str:
    """Format bytes: `512Mi`, `1.5Gi`, `64Gi`."""
    amount = thousandths / 1000
    if amount < _GI:
        return f"{round(amount / _MI)}Mi" if amount else "0"
    gi = amount / _GI
    return f"{round(gi)}Gi" if gi >= _ROUNDED_FROM else f"{round(gi, 1):g}Gi"


def _ratio(part: str, total: str) -> str:
    return f"{part}/{total}"
