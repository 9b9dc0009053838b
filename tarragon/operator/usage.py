"""What pods hold on each node, whoever made them: kept up to date change by change, never by listing."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.base.resources import Resources
from tarragon.cluster.reflector import Live
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.plan.capacity import pod_request


class Usage:
    """Sums by node. A pod that is ending still holds what it has; one that has run to its end holds nothing."""

    def __init__(self, pods: Live[Pod]) -> None:
        self._held: dict[Key, tuple[str, Resources]] = {}
        self._by_node: dict[str, dict[str, int]] = {}
        pods.subscribe(self._follow)

    def on(self, node: str) -> Resources:
        """What is held there now, in thousandths."""
        return self._by_node.get(node, {})

    def _follow(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._add(*held, sign=-1)
        if new is not None and new.spec.node_name and not new.is_finished:
            holds = new.spec.node_name, pod_request(new.spec)
            self._held[key] = holds
            self._add(*holds, sign=1)

    def _add(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        sums = self._by_node.setdefault(node, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + sign * amount
