"""What pods request and which nodes accept them, by the rules of Kubernetes 1.37.

tests/real/test_scheduling_cases.py asks a real kube-scheduler about every case that its API server accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GI = 2**30
GPU = "nvidia.com/gpu"
HUGE = "hugepages-2Mi"
SIDECARS, RESIZES, POD_LEVEL_RESOURCES, POD_LEVEL_RESIZES, ROUNDED_SUMS = 29, 33, 34, 37, 37
"""The minor versions of Kubernetes that have these by default; of the last one, the first that was seen to have it."""


def container(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


@dataclass(frozen=True, kw_only=True)
class RequestCase:
    """The requests of a pod in base units: cores for cpu, bytes for memory."""

    name: str
    spec: Json
    requests: Mapping[str, float]
    since: int = 0
    """The minor version of the first Kubernetes with this answer."""
    is_valid: bool = True
    """Whether an API server accepts the pod."""


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """Whether a node with room for 8 cores accepts a pod beside others."""

    name: str
    accepts: bool
    spec: Json = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Json] = ()
    unschedulable: bool = False
    others: Sequence[Json] = ()
    """The specs of pods on the node."""
    status_of_others: Json = field(default_factory=dict)
    since: int = 0
    is_valid: bool = True


def sidecar(requests: Json) -> Json:
    return container(requests, restartPolicy="Always")


REQUESTS = [
    RequestCase(
        name="containers add up",
        spec={"containers": [container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 1})]},
        requests={"cpu": 1.5, "memory": GI},
    ),
    RequestCase(
        name="a limit without a request is a request",
        spec={"containers": [container({"cpu": 1}, {"cpu": 4, "memory": "8Gi", GPU: 2})]},
        requests={"cpu": 1, "memory": 8 * GI, GPU: 2},
    ),
    RequestCase(
        name="a device is written as a limit",
        spec={"containers": [container({}, {GPU: "2"})]},
        requests={GPU: 2},
    ),
    RequestCase(
        name="an init container counts where it needs more",
        spec={
            "containers": [container({"cpu": 2, "memory": "2Gi"})],
            "initContainers": [container({"cpu": 3, "memory": "1Gi"}), container({"cpu": 1, "memory": "3Gi"})],
        },
        requests={"cpu": 3, "memory": 3 * GI},
    ),
    RequestCase(
        name="a sidecar adds up with the containers and with later init containers",
        spec={
            "containers": [container({"cpu": 2})],
            "initContainers": [container({"cpu": 5}), sidecar({"cpu": 1}), container({"cpu": 3})],
        },
        requests={"cpu": 5},
        since=SIDECARS,
    ),
    RequestCase(
        name="the last sidecar counts for the containers",
        spec={
            "containers": [container({"cpu": 2})],
            "initContainers": [sidecar({"cpu": 1}), container({"cpu": 1}), sidecar({"cpu": 2})],
        },
        requests={"cpu": 5},
        since=SIDECARS,
    ),
    RequestCase(
        name="whole units are rounded up for the pod and not for each container",
        spec={"containers": [container({"cpu": "100m", "memory": "1500m"}), container({"memory": "1500m"})]},
        requests={"cpu": 0.1, "memory": 3},
        since=ROUNDED_SUMS,
    ),
    RequestCase(
        name="pod-level requests replace those of the containers",
        spec={
            "containers": [container({"cpu": 1, "memory": "1Gi"})],
            "resources": {"requests": {"cpu": 3, "memory": "2Gi"}},
        },
        requests={"cpu": 3, "memory": 2 * GI},
        since=POD_LEVEL_RESOURCES,
    ),
    RequestCase(
        name="pod-level limits count where no container requests",
        spec={"containers": [container({"cpu": 1})], "resources": {"limits": {"cpu": 4, "memory": "1Gi"}}},
        requests={"cpu": 1, "memory": GI},
        since=POD_LEVEL_RESOURCES,
    ),
    RequestCase(
        name="pod-level requests count besides container requests of other resources",
        spec={"containers": [container({}, {GPU: 1})], "resources": {"requests": {"cpu": 2}}},
        requests={"cpu": 2, GPU: 1},
        since=POD_LEVEL_RESOURCES,
    ),
    RequestCase(
        name="pod-level limits of huge pages replace the requests of the containers",
        spec={
            "containers": [container({"memory": "1Gi"}, {HUGE: "4Mi"})],
            "resources": {"limits": {HUGE: "8Mi", "memory": "1Gi"}},
        },
        requests={"memory": GI, HUGE: 8 * 2**20},
        since=POD_LEVEL_RESOURCES,
    ),
    RequestCase(
        name="devices can't be requested at the level of the pod",
        spec={"containers": [container({"cpu": 1})], "resources": {"requests": {GPU: 4}, "limits": {GPU: 4}}},
        requests={"cpu": 1},
        is_valid=False,
    ),
    RequestCase(
        name="overhead is added to the largest phase",
        spec={
            "containers": [container({"cpu": 1})],
            "initContainers": [container({"cpu": 2})],
            "overhead": {"cpu": "250m", "memory": "1Gi"},
        },
        requests={"cpu": 2.25, "memory": GI},
        is_valid=False,  # without a runtime class
    ),
    RequestCase(
        name="overhead is added to pod-level requests",
        spec={
            "containers": [container({"cpu": 1})],
            "resources": {"requests": {"cpu": 2}},
            "overhead": {"cpu": "250m"},
        },
        requests={"cpu": 2.25},
        is_valid=False,
    ),
    RequestCase(
        name="an invalid quantity counts as zero",
        spec={"containers": [container({"cpu": "plenty", "memory": "1Gi"})]},
        requests={"memory": GI},
        is_valid=False,
    ),
    RequestCase(
        name="a negative quantity counts as zero",
        spec={"containers": [container({"cpu": "-1"}), container({"cpu": 2})]},
        requests={"cpu": 2},
        is_valid=False,
    ),
]


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}


def required(*terms: Json) -> Json:
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


def wants(key: str, operator: str, *values: str) -> Json:
    return required({"matchExpressions": [expression(key, operator, *values)]})


def on_port(number: int, protocol: str = "TCP", **more: Any) -> Json:
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": number, "protocol": protocol}])], **more}


def resize(*, allocated: str, actuated: str, pending: str) -> Json:
    """The status of a pod with one container that is being resized."""
    status = {"name": "c", "resources": {"requests": {"cpu": actuated}}, "allocatedResources": {"cpu": allocated}}
    condition = {"type": "PodResizePending", "status": "True", "reason": pending}
    return {"containerStatuses": [status], "conditions": [condition] if pending else []}


def tolerates(**toleration: Any) -> Json:
    return {"tolerations": [toleration]}


LABELS = {"disk": "ssd", "gpus": "8", "odd": "1_0", "zeros": "007", "big": "9223372036854775808", "many": "many"}
TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
EVICTING = {**TAINT, "effect": "NoExecute"}
CORDON = "node.kubernetes.io/unschedulable"
ON_HOST = {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 8080}])]}

NODES = [
    *(
        NodeCase(
            name=f"label {key} {operator} {' '.join(values)}",
            labels=LABELS,
            spec=wants(key, operator, *values),
            accepts=accepts,
        )
        for key, operator, values, accepts in [
            ("disk", "In", ("ssd", "nvme"), True),
            ("disk", "In", ("hdd",), False),
            ("absent", "In", ("x",), False),
            ("disk", "NotIn", ("hdd",), True),
            ("disk", "NotIn", ("ssd",), False),
            ("absent", "NotIn", ("x",), True),
            ("disk", "Exists", (), True),
            ("absent", "Exists", (), False),
            ("disk", "DoesNotExist", (), False),
            ("absent", "DoesNotExist", (), True),
            ("gpus", "Gt", ("7",), True),
            ("gpus", "Gt", ("8",), False),
            ("gpus", "Gt", ("0",), True),
            ("gpus", "Lt", ("9",), True),
            ("gpus", "Lt", ("8",), False),
            ("absent", "Gt", ("0",), False),
            ("absent", "Lt", ("0",), False),
            ("many", "Gt", ("0",), False),
            ("odd", "Gt", ("4",), False),
            ("zeros", "Lt", ("8",), True),
            ("big", "Gt", ("4",), False),
        ]
    ),
    NodeCase(
        name="more than one number",
        labels=LABELS,
        spec=wants("gpus", "Gt", "7", "9"),
        accepts=False,
        is_valid=False,
    ),
    NodeCase(
        name="an unknown operator", labels=LABELS, spec=wants("disk", "Like", "ssd"), accepts=False, is_valid=False
    ),
    NodeCase(name="no terms", spec=required(), accepts=False, is_valid=False),
    NodeCase(name="an empty term", spec=required({}), accepts=False),
    NodeCase(name="no required affinity", spec={"affinity": {"nodeAffinity": {}}}, accepts=True),
    NodeCase(
        name="one of two terms",
        labels=LABELS,
        spec=required(
            {"matchExpressions": [expression("disk", "In", "hdd")]},
            {"matchExpressions": [expression("disk", "In", "ssd")]},
        ),
        accepts=True,
    ),
    NodeCase(
        name="one of two expressions",
        labels=LABELS,
        spec=required({"matchExpressions": [expression("disk", "In", "ssd"), expression("gpus", "Gt", "8")]}),
        accepts=False,
    ),
    NodeCase(
        name="another node by name",
        spec=required({"matchFields": [expression("metadata.name", "In", "elsewhere")]}),
        accepts=False,
    ),
    NodeCase(
        name="any but another node",
        spec=required({"matchFields": [expression("metadata.name", "NotIn", "elsewhere")]}),
        accepts=True,
    ),
    NodeCase(name="node selector", labels=LABELS, spec={"nodeSelector": {"disk": "ssd"}}, accepts=True),
    NodeCase(
        name="node selector of another value", labels=LABELS, spec={"nodeSelector": {"disk": "hdd"}}, accepts=False
    ),
    NodeCase(name="node selector of no value", spec={"nodeSelector": {"disk": ""}}, accepts=False),
    NodeCase(
        name="node selector and affinity",
        labels=LABELS,
        spec={"nodeSelector": {"disk": "ssd"}, **wants("gpus", "Gt", "8")},
        accepts=False,
    ),
    NodeCase(name="a taint", taints=[TAINT], accepts=False),
    NodeCase(name="an evicting taint", taints=[EVICTING], accepts=False),
    NodeCase(name="a soft taint", taints=[{**TAINT, "effect": "PreferNoSchedule"}], accepts=True),
    *(
        NodeCase(name=f"a taint {toleration}", taints=[TAINT], spec=tolerates(**toleration), accepts=accepts)
        for toleration, accepts in [
            ({"key": "dedicated", "value": "a", "effect": "NoSchedule"}, True),
            ({"key": "dedicated", "value": "a"}, True),
            ({"key": "dedicated", "operator": "Equal", "value": "b"}, False),
            ({"key": "dedicated"}, False),
            ({"key": "dedicated", "operator": "Exists"}, True),
            ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({"operator": "Exists"}, True),
            ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ]
    ),
    NodeCase(
        name="an unknown toleration operator",
        taints=[TAINT],
        spec=tolerates(key="dedicated", operator="Like", value="a"),
        accepts=False,
        is_valid=False,
    ),
    NodeCase(
        name="an empty toleration operator is Equal",
        taints=[TAINT],
        spec=tolerates(key="dedicated", operator="", value="a"),
        accepts=True,
    ),
    NodeCase(
        name="one of two taints",
        taints=[TAINT, {"key": "other", "effect": "NoExecute"}],
        spec=tolerates(key="dedicated", operator="Exists"),
        accepts=False,
    ),
    NodeCase(name="cordoned", unschedulable=True, accepts=False),
    NodeCase(
        name="cordoned and tolerated",
        unschedulable=True,
        spec=tolerates(key=CORDON, operator="Exists", effect="NoSchedule"),
        accepts=True,
    ),
    NodeCase(name="a free host port", spec=on_port(8080), others=[on_port(8081)], accepts=True),
    NodeCase(name="a used host port", spec=on_port(8080), others=[on_port(8080)], accepts=False),
    NodeCase(name="a host port of another protocol", spec=on_port(8080, "UDP"), others=[on_port(8080)], accepts=True),
    NodeCase(name="two ports on the host network", spec=ON_HOST, others=[ON_HOST], accepts=False),
    NodeCase(name="a port on the host network", spec=ON_HOST, others=[on_port(8080)], accepts=False),
    NodeCase(
        name="the port of a sidecar",
        spec=on_port(8080),
        others=[
            {
                "containers": [container()],
                "initContainers": [
                    container(restartPolicy="Always", ports=[{"containerPort": 80, "hostPort": 8080}]),
                ],
            }
        ],
        accepts=False,
        since=SIDECARS,
    ),
    NodeCase(
        name="the port of an init container",
        spec=on_port(8080),
        others=[
            {
                "containers": [container()],
                "initContainers": [container(ports=[{"containerPort": 80, "hostPort": 8080}])],
            }
        ],
        accepts=True,
    ),
    NodeCase(
        name="room beside others",
        spec={"containers": [container({"cpu": 3})]},
        others=[{"containers": [container({"cpu": 5})]}],
        accepts=True,
    ),
    NodeCase(
        name="too little room beside others",
        spec={"containers": [container({"cpu": "3001m"})]},
        others=[{"containers": [container({"cpu": 5})]}],
        accepts=False,
    ),
    NodeCase(
        name="others with pod-level requests",
        spec={"containers": [container({"cpu": 3})]},
        others=[{"containers": [container({"cpu": 1})], "resources": {"requests": {"cpu": 6}}}],
        accepts=False,
        since=POD_LEVEL_RESOURCES,
    ),
    *(
        NodeCase(
            name=f"beside a pod {case}",
            spec={"containers": [container({"cpu": 4})]},
            others=[{"containers": [container({"cpu": requested})]}],
            status_of_others=resize(allocated=allocated, actuated=actuated, pending=pending),
            accepts=accepts,
            since=RESIZES,
        )
        for case, requested, allocated, actuated, pending, accepts in [
            ("that was resized", "4", "4", "4", "", True),
            ("whose smaller size is not allocated", "2", "6", "6", "", False),
            ("whose smaller size is not actuated", "2", "2", "6", "", False),
            ("whose larger size is deferred", "6", "2", "2", "Deferred", False),
            ("whose larger size is infeasible", "6", "2", "2", "Infeasible", True),
        ]
    ),
    NodeCase(
        name="beside a pod whose smaller size of the whole pod is not allocated",
        spec={"containers": [container({"cpu": 4})]},
        others=[{"containers": [container({"cpu": 1})], "resources": {"requests": {"cpu": "2"}}}],
        status_of_others={"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "6"}},
        accepts=False,
        since=POD_LEVEL_RESIZES,
    ),
    NodeCase(
        name="no more than its pods",
        spec={"containers": [container()]},
        others=[{"containers": [container()]}] * 3,
        accepts=False,
    ),
    NodeCase(
        name="a device that it lacks",
        spec={"containers": [container({}, {GPU: 1})]},
        accepts=False,
    ),
    NodeCase(
        name="no device of those that it lacks",
        spec={"containers": [container({}, {GPU: 0})]},
        accepts=True,
    ),
]
