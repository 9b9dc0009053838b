from __future__ import annotations

from typing import Any

from tarragon.client.informer.cache_reader import EventHandler
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.vgpu_requests import with_whole_gpus
from tarragon.operator.informers.cache_transforms import CachedPod
from tarragon.operator.informers.pod_usage import NodeSums, PodUsage


def test_what_was_given_and_taken_again_leaves_nothing_behind() -> None:
    """Nodes come and go by the thousand where machines are rented by the minute."""
    sums = NodeSums()
    for number in range(3):
        sums.add(f"n{number}", {"cpu": 1000, "pods": 1000})
    sums.add("n0", {"cpu": 500, "pods": 1000})
    for number in range(3):
        sums.subtract(f"n{number}", {"cpu": 1000, "pods": 1000})

    assert len(sums) == 1
    assert sums.on("n0") == {"cpu": 500, "pods": 1000}
    assert sums.on("n1") == {}


def test_an_amount_of_nothing_is_not_remembered() -> None:
    sums = NodeSums()
    sums.add("n", {"cpu": 0})

    assert len(sums) == 0


GPU = "nvidia.com/gpu"


class Pods:
    """The cache of pods, as far as `PodUsage` looks at it."""

    def __init__(self) -> None:
        self._handlers: list[EventHandler[Pod]] = []
        self._pods: dict[Key, Pod] = {}

    def add_event_handler(self, handler: EventHandler[Pod]) -> None:
        self._handlers.append(handler)

    def put(self, name: str, pod: dict[str, Any] | None) -> None:
        key = Key("s", name)
        old, new = self._pods.get(key), None if pod is None else decode(encode(pod), CachedPod)
        if new is not None:
            self._pods[key] = new
        for handler in self._handlers:
            handler(key, old, new)


def anchor(namespace: str = "s", **metadata: Any) -> dict[str, Any]:
    amounts = {"cpu": "20m", GPU: "1"}
    return {
        "metadata": {
            "name": "a",
            "namespace": namespace,
            "labels": {"tarragon.dev/gpu-anchor": "true"},
            "annotations": {"tarragon.dev/vgpu": "1"},
            **metadata,
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "gpu", "resources": {"limits": amounts, "requests": amounts}}],
        },
    }


def test_an_anchor_holds_next_to_nothing_of_its_vgpu_which_is_free_as_soon_as_nobody_shares_it() -> None:
    pods = Pods()
    usage = PodUsage(pods, "s")  # type: ignore[arg-type]
    pods.put("a", anchor())
    assert usage.held.on("n") == {"cpu": 20, "pods": 1000, f"{GPU}/1": 1}
    assert usage.terminating.on("n") == {f"{GPU}/1": 1}

    pods.put("a", anchor(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert usage.terminating.on("n") == usage.held.on("n") == {"cpu": 20, "pods": 1000, f"{GPU}/1": 1}

    pods.put("a", None)
    assert (len(usage.held), len(usage.terminating)) == (0, 0)


def test_a_pod_elsewhere_holds_the_whole_gpu_whatever_its_labels_say() -> None:
    pods = Pods()
    usage = PodUsage(pods, "s")  # type: ignore[arg-type]
    pods.put("a", anchor("default"))

    assert usage.held.on("n") == {"cpu": 20, "pods": 1000, GPU: 1000}
    assert usage.terminating.on("n") == {}


def test_vgpus_that_a_node_does_not_offer_are_whole_gpus() -> None:
    held = {"cpu": 5, GPU: 1000, f"{GPU}/0": 500_001, f"{GPU}/0/memory": 7, f"{GPU}/1": 1, f"{GPU}/2": 3}
    offered = {GPU: 4000, f"{GPU}/0": 0, f"{GPU}/0/memory": 0}

    assert with_whole_gpus(held, {GPU: 4000}, held) == {"cpu": 5, GPU: 4000}
    assert with_whole_gpus(held, offered, held) == {"cpu": 5, GPU: 3000, f"{GPU}/0": 500_001, f"{GPU}/0/memory": 7}
    assert with_whole_gpus({"cpu": 5}, {GPU: 4000}, held) == {"cpu": 5}
    releasing = {f"{GPU}/0": 1, f"{GPU}/1": 1, f"{GPU}/2": -3}
    assert with_whole_gpus(releasing, {GPU: 4000}, held) == {GPU: 1000}
