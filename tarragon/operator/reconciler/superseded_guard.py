"""`WhileItStands`: the port for one step. Nothing is made any more once a later decision has taken the step over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tarragon.client.errors import Conflict
from tarragon.client.middleware.middleware import Passing
from tarragon.client.port import Cluster
from tarragon.kube.meta import Json, Resource

T = TypeVar("T")


class WhileItStands(Passing):
    """A create raises Conflict once `stands` denies what the step was decided on."""

    def __init__(self, cluster: Cluster, stands: Callable[[], bool]) -> None:
        super().__init__(cluster)
        self._stands = stands

    async def create(self, resource: Resource[T], body: Mapping[str, Json]) -> T:
        if not self._stands():
            words = f"{resource.plural} {body['metadata']['name']} is not to be made any more"
            raise Conflict({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": words})
        return await super().create(resource, body)
