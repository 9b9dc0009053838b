"""Binds pods to nodes: the one thing that only a scheduler asks of the API, and that the port does not know."""

from __future__ import annotations

from tarragon.kube.core import Pod
from tarragon.localcluster.registry.api import Api


class Binder:
    """POST pods/binding, in process."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def bind(self, pod: Pod, node: str) -> None:
        """Raises ApiError: Conflict when the pod is on a node already or is another one of its name, NotFound."""
        target = self._api.target(("", "v1", "pods"), pod.metadata.namespace, pod.metadata.name, "binding")
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
        there = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self._api.create(target, {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": there})
