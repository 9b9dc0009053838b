"""The API client for one reconcile: refuses creates once the job or its admission has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tarragon.client.errors import Conflict
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.meta import Json, Resource

T = TypeVar("T")


class SupersededGuard(DelegatingClient):
    """A create raises Conflict once `stands` says that the state the step was decided on has changed."""

    def __init__(self, cluster: Client, stands: Callable[[], bool]) -> None:
        super().__init__(cluster)
        self._stands = stands

    async def create(self, resource: Resource[T], body: Mapping[str, Json]) -> T:
        if not self._stands():
            message = f"{resource.plural} {body['metadata']['name']} was not created: the job has changed"
            raise Conflict(
                {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": message}
            )
        return await super().create(resource, body)
