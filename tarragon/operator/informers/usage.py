"""What pods hold on each node, whoever made them: kept up to date change by change, never by listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from tarragon.base.resources import Resources
from tarragon.client.informer.cache_reader import Live
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Key
from tarragon.plan.nodes.capacity import pod_request


class Sums:
    """Amounts by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, int]] = {}
        self._touched: set[str] = set()

    def __len__(self) -> int:
        """Nodes of which there is something to remember."""
        return len(self._by_node)

    def on(self, node: str) -> Resources:
        return self._by_node.get(node, {})

    def give(self, node: str, amounts: Resources) -> None:
        self._add(node, amounts, 1)

    def take(self, node: str, amounts: Resources) -> None:
        self._add(node, amounts, -1)

    def touched(self) -> set[str]:
        """The nodes whose amounts may have changed since this was asked last."""
        touched, self._touched = self._touched, set()
        return touched

    def _add(self, node: str, amounts: Resources, sign: int) -> None:
        self._touched.add(node)
        sums = self._by_node.setdefault(node, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + sign * amount
            if not sums[name]:
                del sums[name]
        if not sums:
            # Where nodes come and go, those that are gone would be remembered for ever.
            del self._by_node[node]


class Usage:
    """A pod that is ending still holds what it has; one that has run to its end holds nothing."""

    def __init__(self, pods: Live[Pod]) -> None:
        self.held = Sums()
        """What pods hold on each node now, in thousandths."""
        self.ending = Sums()
        """Those of it whose pods have been told to end."""
        pods.subscribe(self._follow)

    def _follow(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if old is not None and holds(old):
            self._count(old, Sums.take)
        if new is not None and holds(new):
            self._count(new, Sums.give)

    def _count(self, pod: Pod, change: Callable[[Sums, str, Resources], None]) -> None:
        amounts = request_of(pod)
        change(self.held, seat(pod), amounts)
        if pod.metadata.is_ending:
            change(self.ending, seat(pod), amounts)


def holds(pod: Pod) -> bool:
    return bool(seat(pod)) and not pod.is_finished


def seat(pod: Pod) -> str:
    """Its node, or the one that kube-scheduler clears for it: what was taken from others there is nobody else's."""
    return pod.spec.node_name or pod.status.nominated_node_name


def cleared_nodes(pod: Pod) -> Iterator[str]:
    """From which kube-scheduler has sent others away for the pod's sake."""
    if not pod.spec.node_name and pod.status.nominated_node_name and not pod.is_finished:
        yield pod.status.nominated_node_name


def request_of(pod: Pod) -> Resources:
    """What it holds, or will, in thousandths."""
    return _request(encode(pod.spec))


@lru_cache(maxsize=4096)
def _request(spec: bytes) -> Resources:
    """Most pods are like some other: adding up their containers anew would be most of the work."""
    return pod_request(decode(spec, PodSpec))
