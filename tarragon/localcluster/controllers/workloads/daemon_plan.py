"""What a daemon set does next: one pod for each node that will have it. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tarragon.kube import core
from tarragon.localcluster.controllers.workloads.model import DaemonSet, Json
from tarragon.localcluster.controllers.workloads.pod_control import MOST_AT_ONCE, omitting_zeros
from tarragon.localcluster.controllers.workloads.pods import Pod
from tarragon.localcluster.controllers.workloads.revisions import HASH_LABEL
from tarragon.localcluster.controllers.workloads.shares import share
from tarragon.localcluster.fit import obstacles

_NODE = "node.kubernetes.io"
TOLERATIONS: Sequence[Json] = (
    *({"key": f"{_NODE}/{key}", "operator": "Exists", "effect": "NoExecute"} for key in ("not-ready", "unreachable")),
    *(
        {"key": f"{_NODE}/{key}", "operator": "Exists", "effect": "NoSchedule"}
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
"""A daemon stays where others are driven away."""
_READY = core.PodCondition(type="Ready", status="True")


@dataclass(frozen=True, slots=True)
class Step:
    """`make`: names of nodes."""

    make: Sequence[str] = ()
    delete: Sequence[Pod] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`update`: the hash of the template as it is."""

    owner: DaemonSet
    nodes: Sequence[core.Node]
    pods: Sequence[Pod]
    update: str
    now: dt.datetime

    @property
    def on_node(self) -> Mapping[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(node_of(pod), []).append(pod)
        return found

    @property
    def wanted(self) -> list[str]:
        return [node.metadata.name for node in self.nodes if may_run(self.owner, node)]

    def is_available(self, pod: Pod) -> bool:
        return pod.is_active and pod.is_available(self.owner.spec.min_ready_seconds, self.now)

    def is_new(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(HASH_LABEL) == self.update


def node_of(pod: Pod) -> str:
    """Where it is, or is to go."""
    if pod.spec.node_name:
        return pod.spec.node_name
    try:
        affinity = (pod.spec.affinity or {})["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError, TypeError):
        return ""


def bound_for(node: str, affinity: Json | None) -> Json:
    """The affinity of a pod for one node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    kept = (affinity or {}).get("nodeAffinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**(affinity or {}), "nodeAffinity": {**kept, **required}}


def may_run(owner: DaemonSet, node: core.Node) -> bool:
    """By selectors and taints. Neither its readiness nor its room count: the scheduler waits for these."""
    spec = owner.spec.template.get("spec") or {}
    tolerating = {**spec, "tolerations": [*(spec.get("tolerations") or ()), *TOLERATIONS]}
    pod = msgspec.convert({"spec": tolerating}, core.Pod)
    bare = msgspec.structs.replace(pod.spec, containers=[], init_containers=[], overhead={})
    ready = msgspec.structs.replace(node, status=core.NodeStatus(conditions=[_READY]))
    return not obstacles(msgspec.structs.replace(pod, spec=bare), ready, {"pods": 10**6})


def step(scene: Scene) -> Step:
    on_node, wanted = scene.on_node, scene.wanted
    make: list[str] = []
    delete = [pod for node, pods in on_node.items() if node not in wanted for pod in pods]
    for node in wanted:
        pods = on_node.get(node, [])
        delete += [pod for pod in pods if pod.is_finished]
        active = sorted((pod for pod in pods if pod.is_active), key=lambda pod: (not pod.is_ready, _age(pod)))
        delete += active[1:]
        # The next one waits until the last has gone: they would want the same ports and folders.
        if not pods:
            make.append(node)
    delete = [pod for pod in delete if not pod.metadata.is_ending]
    if scene.owner.spec.update_strategy.type == "RollingUpdate":
        delete += [pod for pod in _outdated(scene) if pod not in delete]
    return Step(make[:MOST_AT_ONCE], delete)


def _outdated(scene: Scene) -> list[Pod]:
    """Those that do not work at once; the others as far as enough nodes keep one that does."""
    wanted = scene.wanted
    limit = share(scene.owner.spec.update_strategy.rolling_update.max_unavailable, len(wanted), up=True)
    served = {node_of(pod) for pod in scene.pods if scene.is_available(pod)}
    old = [pod for pod in scene.pods if pod.is_active and not scene.is_new(pod) and node_of(pod) in wanted]
    broken = [pod for pod in old if not scene.is_available(pod)]
    working = [pod for pod in old if scene.is_available(pod)]
    room = limit - sum(node not in served for node in wanted)
    return [*broken, *working[: max(0, room)]]


def status(scene: Scene) -> Json:
    wanted = set(scene.wanted)
    active = [pod for pod in scene.pods if pod.is_active]
    here = {node_of(pod): pod for pod in active if node_of(pod) in wanted}
    available = sum(scene.is_available(pod) for pod in here.values())
    counts = {
        "updatedNumberScheduled": sum(map(scene.is_new, here.values())),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    return {
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len(here),
        "numberMisscheduled": len({node_of(pod) for pod in active} - wanted),
        "numberReady": sum(pod.is_ready for pod in here.values()),
        "observedGeneration": scene.owner.metadata.generation,
        **omitting_zeros(counts),
    }


def _age(pod: Pod) -> str:
    created = pod.metadata.creation_timestamp
    return created.isoformat() if created else ""
