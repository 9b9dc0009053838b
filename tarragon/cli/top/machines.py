"""The rows of nodes: allocatable, requested and, with metrics, used resources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.resources import CPU, MEMORY, PODS, Resources
from tarragon.cli.jobview.gpus import accelerators
from tarragon.kube.core import Node, Pod
from tarragon.plan.nodes.capacity import node_capacity, pod_request

_GI = 2**30
_MI = 2**20
_ROUNDED_FROM = 10


@dataclass(slots=True)
class Requests:
    """The sum of the requests of the pods on each node, updated incrementally because there may be many pods."""

    of_node: dict[str, dict[str, int]] = field(default_factory=dict)

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None and pod.spec.node_name and not pod.is_finished:
                self._add(pod, sign)

    def _add(self, pod: Pod, sign: int) -> None:
        requested = self.of_node.setdefault(pod.spec.node_name, {})
        for name, amount in pod_request(pod.spec).items():
            requested[name] = requested.get(name, 0) + sign * amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The row of a node: `has` is allocatable, `asked` requested; `used` is empty without metrics."""

    name: str
    state: str
    has: Resources
    asked: Resources
    used: Resources = field(default_factory=dict)

    @property
    def gpus(self) -> str:
        return _ratio(str(accelerators(self.asked)), str(accelerators(self.has)))

    @property
    def pods(self) -> str:
        return _ratio(str(self.asked.get(PODS, 0) // 1000), str(self.has.get(PODS, 0) // 1000))

    @property
    def cpu(self) -> str:
        return _ratio(cores(self.asked.get(CPU, 0)), cores(self.has.get(CPU, 0)))

    @property
    def memory(self) -> str:
        return _ratio(size(self.asked.get(MEMORY, 0)), size(self.has.get(MEMORY, 0)))

    @property
    def cpu_used(self) -> str:
        return cores(self.used[CPU]) if CPU in self.used else "-"

    @property
    def memory_used(self) -> str:
        return size(self.used[MEMORY]) if MEMORY in self.used else "-"


def machines(nodes: Iterable[Node], requests: Requests, usage: Mapping[str, Resources]) -> Sequence[Machine]:
    """Return the rows of the nodes, sorted by name."""
    return [
        Machine(
            name=node.metadata.name,
            state=state(node),
            has=node_capacity(node),
            asked=requests.of_node.get(node.metadata.name, {}),
            used=usage.get(node.metadata.name, {}),
        )
        for node in sorted(nodes, key=lambda node: node.metadata.name)
    ]


def state(node: Node) -> str:
    """Return the node's status as kubectl prints it."""
    ready = "Ready" if node.is_ready else "NotReady"
    return f"{ready},SchedulingDisabled" if node.spec.unschedulable else ready


def cores(thousandths: int) -> str:
    """Format CPUs: `4`, `0.5`, `0.04`."""
    return f"{round(thousandths / 1000, 1 if thousandths >= 1000 else 2):g}"  # noqa: PLR2004 - thousandths of one


def size(thousandths: int) -> str:
    """Format bytes: `512Mi`, `1.5Gi`, `64Gi`."""
    amount = thousandths / 1000
    if amount < _GI:
        return f"{round(amount / _MI)}Mi" if amount else "0"
    gi = amount / _GI
    return f"{round(gi)}Gi" if gi >= _ROUNDED_FROM else f"{round(gi, 1):g}Gi"


def _ratio(part: str, total: str) -> str:
    return f"{part}/{total}"
