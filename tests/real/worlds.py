"""Small clusters made at random, each with pods that are there and one that asks for a place: for comparing answers.

Every world has labels, domains and namespaces of its own, so that hundreds of them can share one control plane. The pod
that asks wants one of `PIN`, which only one node of the world has: whoever places it says yes or no to that node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"
PIN = "tests.tarragon.dev/pin"
GPU = "nvidia.com/gpu"
RUNTIME = "fat"
NODES, NEAR, APART, SPREAD = "nodes", "near", "apart", "spread"
MODERN = 34
"""The minor version since which Kubernetes has all fields of affinity and spreads that appear here."""
OVERHEAD = {"cpu": "250m", "memory": "64Mi"}
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True, kw_only=True)
class World:
    """Bodies as they are sent; `ending` and `finished` are names of pods that are brought to that."""

    name: str
    nodes: Sequence[Json]
    pods: Sequence[Json]
    asking: Json
    pinned: str
    ending: frozenset[str] = field(default=frozenset())
    finished: frozenset[str] = field(default=frozenset())

    @property
    def namespaces(self) -> tuple[str, str]:
        return self.name, f"{self.name}-other"


def worlds(seed: int, *, minor: int) -> list[World]:
    """One for each node of the same random cluster: only the node that is pinned differs.

    `minor` is the version of Kubernetes that is asked: what it does not know is left out.
    """
    size = random.Random(seed).choice((2, 3, 3))
    return [
        _Maker(random.Random(seed), f"w{seed}-{place}", is_modern=minor >= MODERN).world(place, size)
        for place in range(size)
    ]


class _Maker:
    """The same dice throw the same cluster, whatever it is called.

    Some worlds are about nodes and amounts, others about pods that want to be near each other, or apart, or spread: a
    world about everything says no for so many reasons that none of them is tried.
    """

    def __init__(self, dice: random.Random, name: str, *, is_modern: bool) -> None:
        self._dice = dice
        self._is_modern = is_modern
        self._name = name
        self._topic = dice.choice((NODES, NEAR, APART, SPREAD))

    def _about(self, topic: str, otherwise: float) -> float:
        return 0.9 if topic == self._topic else otherwise

    def _seldom(self, probability: float) -> float:
        """Of what is about nodes and amounts."""
        return probability if self._topic == NODES else probability / 8

    def world(self, place: int, size: int) -> World:
        nodes = [self._node(f"{self._name}-n{number}") for number in range(size)]
        nodes[place]["status"]["allocatable"][PIN] = "1"
        there = [self._there(number, nodes) for number in range(self._dice.randint(1, 6))]
        names = [pod["metadata"]["name"] for pod in there]
        ending = frozenset(name for name in names if self._chance(0.15))
        finished = frozenset(name for name in names if self._chance(0.15)) - ending
        return World(
            name=self._name,
            nodes=nodes,
            pods=there,
            asking=self._asking(),
            pinned=nodes[place]["metadata"]["name"],
            ending=ending,
            finished=finished,
        )

    def _chance(self, probability: float) -> bool:
        return self._dice.random() < probability

    def _maybe(self, probability: float, make: Callable[[], Json]) -> Json:
        """The dice are thrown in any case."""
        made = make()
        return made if self._chance(probability) else {}

    def _node(self, name: str) -> Json:
        dice = self._dice
        labels = {HOST: name, "world": self._name}
        labels |= self._maybe(0.85, lambda: {"zone": self._domain("zone")})
        labels |= self._maybe(0.7, lambda: {"rack": self._domain("rack")})
        labels |= self._maybe(0.6, lambda: {"disk": dice.choice(("ssd", "hdd"))})
        labels |= self._maybe(0.6, lambda: {"gpus": dice.choice(("2", "4", "8", "1_0", "007", "many"))})
        amounts = {"cpu": "16", "memory": "16Gi", "pods": "110"}
        if self._topic == NODES:
            amounts |= {"cpu": dice.choice(("1", "2", "6")), "memory": dice.choice(("1Gi", "5Gi"))}
        amounts |= self._maybe(self._seldom(0.2), lambda: {"pods": dice.choice(("1", "2", "3"))})
        amounts |= self._maybe(0.6, lambda: {"ephemeral-storage": dice.choice(("1Gi", "5Gi"))})
        amounts |= self._maybe(0.5, lambda: {GPU: dice.choice(("1", "2"))})
        amounts |= self._maybe(0.5, lambda: {"hugepages-2Mi": dice.choice(("4Mi", "16Mi"))})
        taints = [self._taint() for _ in range(dice.choice((0, 1, 2)) if self._chance(self._seldom(0.4)) else 0)]
        spec: Json = {"taints": list({(one["key"], one["effect"]): one for one in taints}.values())}
        if self._chance(self._seldom(0.05)):
            spec["unschedulable"] = True
            # As the node controller does, which is not there.
            spec["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "of a test"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": amounts, "capacity": dict(amounts), "conditions": [ready]},
        }

    def _domain(self, word: str) -> str:
        return f"{self._name}-{word}-{self._dice.choice('ab')}"

    def _taint(self) -> Json:
        value = self._dice.choice(("", "v1", "v2"))
        return {"key": self._dice.choice(("k1", "k2")), "value": value, "effect": self._dice.choice(EFFECTS)}

    def _there(self, number: int, nodes: Sequence[Json]) -> Json:
        spec = {
            "nodeName": self._dice.choice(nodes)["metadata"]["name"],
            "containers": self._containers(1),
            **self._maybe(self._about(APART, 0.08) / 2, lambda: {"affinity": {"podAntiAffinity": self._between()}}),
        }
        return self._pod(f"p{number}", spec, "" if self._chance(0.8) else "-other")

    def _asking(self) -> Json:
        containers = self._containers(self._dice.choice((1, 1, 2)))
        containers[0]["resources"]["requests"][PIN] = containers[0]["resources"]["limits"][PIN] = "1"
        spec = {
            "containers": containers,
            "nodeSelector": {
                "world": self._name,
                **self._maybe(0.1, lambda: {"disk": self._dice.choice(("ssd", "hdd"))}),
            },
            "tolerations": [self._toleration() for _ in range(self._dice.choice((0, 0, 1, 2)))],
            **self._maybe(
                self._seldom(0.25), lambda: {"initContainers": self._containers(self._dice.choice((1, 2)), word="i")}
            ),
            **self._maybe(0.15, lambda: {"runtimeClassName": RUNTIME, "overhead": dict(OVERHEAD)}),
            **self._maybe(self._about(SPREAD, 0.1), lambda: {"topologySpreadConstraints": self._spreads()}),
        }
        affinity = {
            **self._maybe(self._seldom(0.4), lambda: {"nodeAffinity": self._of_nodes()}),
            **self._maybe(self._about(NEAR, 0.08), lambda: {"podAffinity": self._between()}),
            **self._maybe(self._about(APART, 0.08) / 2, lambda: {"podAntiAffinity": self._between()}),
        }
        return self._pod("asks", {**spec, "affinity": affinity} if affinity else spec, "")

    def _pod(self, name: str, spec: Json, of_namespace: str) -> Json:
        labels = {"app": self._dice.choice("xy"), **self._maybe(0.5, lambda: {"tier": self._dice.choice("12")})}
        metadata = {"name": name, "namespace": f"{self._name}{of_namespace}", "labels": labels}
        spec = {"terminationGracePeriodSeconds": 600, **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _containers(self, count: int, word: str = "c") -> list[Json]:
        return [self._container(f"{word}{number}", has_port=word == "c") for number in range(count)]

    def _container(self, name: str, *, has_port: bool) -> Json:
        dice = self._dice
        requests = {**self._maybe(0.6, lambda: {"cpu": dice.choice(("100m", "300m", "1", "1500m"))})}
        requests |= self._maybe(0.6, lambda: {"memory": dice.choice(("100Mi", "300Mi", "2Gi"))})
        requests |= self._maybe(self._seldom(0.2), lambda: {"ephemeral-storage": dice.choice(("1Gi", "3Gi"))})
        limits = {**self._maybe(0.1, lambda: {"cpu": "2", "memory": "2Gi"})}
        whole = {**self._maybe(self._seldom(0.2), lambda: {GPU: dice.choice(("1", "2"))})}
        if "memory" in requests or "memory" in limits:
            whole |= self._maybe(self._seldom(0.2), lambda: {"hugepages-2Mi": dice.choice(("4Mi", "8Mi"))})
        # Where only a limit is written, the API server fills in the request.
        written = whole if self._chance(0.5) else {}
        port = self._maybe(
            0.15, lambda: {"hostPort": dice.choice((8080, 8081)), "protocol": dice.choice(("TCP", "UDP"))}
        )
        ports = [{"containerPort": 80, **port}] if port and has_port and name == "c0" else []
        return {
            "name": name,
            "image": "i",
            "resources": {"requests": {**requests, **written}, "limits": {**limits, **whole}},
            **({"ports": ports} if ports else {}),
        }

    def _toleration(self) -> Json:
        some: Json = {**self._maybe(0.5, lambda: {"effect": self._dice.choice(EFFECTS[:2])})}
        if self._chance(0.3):
            return {"operator": "Exists", **some, **self._maybe(0.8, lambda: {"key": self._dice.choice(("k1", "k2"))})}
        return {"key": self._dice.choice(("k1", "k2")), "value": self._dice.choice(("", "v1", "v2")), **some}

    def _of_nodes(self) -> Json:
        terms = [self._node_term() for _ in range(self._dice.choice((1, 2)))]
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}

    def _node_term(self) -> Json:
        dice = self._dice
        pool: Sequence[Json] = [
            {"key": "disk", "operator": dice.choice(("In", "NotIn")), "values": [dice.choice(("ssd", "hdd"))]},
            {"key": "gpus", "operator": dice.choice(("Gt", "Lt")), "values": [dice.choice(("3", "0", "8"))]},
            {"key": dice.choice(("disk", "rack", "gpus")), "operator": dice.choice(("Exists", "DoesNotExist"))},
            {"key": "zone", "operator": "In", "values": [self._domain("zone"), "elsewhere"]},
        ]
        name = f"{self._name}-n{dice.choice((0, 1))}"
        fields = {"key": "metadata.name", "operator": dice.choice(("In", "NotIn")), "values": [name]}
        chosen = dice.sample(pool, dice.choice((1, 1, 2)))
        return {"matchExpressions": chosen, **self._maybe(0.2, lambda: {"matchFields": [fields]})}

    def _between(self) -> Json:
        terms = [self._term() for _ in range(self._dice.choice((1, 1, 2)))]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def _term(self) -> Json:
        others = self._maybe(
            0.2, lambda: {"namespaces": [self._name, f"{self._name}-other"][self._dice.choice((0, 1)) :]}
        )
        if self._is_modern:
            others |= self._maybe(0.2, lambda: {"namespaceSelector": self._namespaces()})
        term = {"topologyKey": self._dice.choice((HOST, "zone", "rack")), **self._selector(empty={}), **others}
        if not self._is_modern:
            return term
        return self._with_label_keys(self._dice.choice(("matchLabelKeys", "mismatchLabelKeys")), term)

    def _with_label_keys(self, word: str, term: Json) -> Json:
        """An API server takes no key that the selector has, too."""
        keys = self._maybe(0.3, lambda: {word: ["tier"]})
        return {**term, **({} if "tier" in str(term["labelSelector"]) else keys)}

    def _namespaces(self) -> Json:
        named = [self._name, f"{self._name}-other"][self._dice.choice((0, 1)) :]
        return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": named}]}

    def _selector(self, *, empty: Json) -> Json:
        """Mostly one that selects something. `empty` stands for one without requirements."""
        dice = self._dice
        expression = dice.choice(
            (
                {"key": "app", "operator": "In", "values": dice.choice((["x"], ["x", "y"]))},
                {"key": "tier", "operator": "NotIn", "values": ["1"]},
                {"key": "tier", "operator": "Exists"},
                {"key": "tier", "operator": "DoesNotExist"},
            )
        )
        by_labels = {"matchLabels": {"app": dice.choice("xy")}}
        return {"labelSelector": dice.choice((by_labels, by_labels, {"matchExpressions": [expression]}, empty))}

    def _spreads(self) -> list[Json]:
        keys = self._dice.sample((HOST, "zone", "rack"), self._dice.choice((1, 1, 2)))
        return [self._spread(key) for key in keys]

    def _spread(self, key: str) -> Json:
        constraint = {
            "topologyKey": key,
            "maxSkew": self._dice.choice((1, 1, 2)),
            "whenUnsatisfiable": self._dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            **self._selector(empty={"matchLabels": {"app": "z"}}),
        }
        return (
            self._with_label_keys("matchLabelKeys", self._modern_spread(constraint)) if self._is_modern else constraint
        )

    def _modern_spread(self, constraint: Json) -> Json:
        choice = self._dice.choice
        required = self._maybe(0.3, lambda: {"minDomains": choice((1, 2, 3))})
        return {
            **constraint,
            **(required if constraint["whenUnsatisfiable"] == "DoNotSchedule" else {}),
            **self._maybe(0.3, lambda: {"nodeAffinityPolicy": choice(("Honor", "Ignore"))}),
            **self._maybe(0.3, lambda: {"nodeTaintsPolicy": choice(("Honor", "Ignore"))}),
        }
