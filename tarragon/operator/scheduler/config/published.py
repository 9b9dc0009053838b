"""The operator's word on how it decides, for `tarragon why` and whoever else may read it: written when it changes."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.port import Cluster
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tarragon.plan.config.published import Data, Ways, written

LOOKS_SECONDS = 300.0
"""What somebody has deleted or edited is put right after so long at the latest."""
AGAIN_SECONDS = 60.0
"""After a write that failed, or came too late."""

WHOLE = CONFIG_MAPS.reading(dict)
log = structlog.get_logger(__name__)


class Publishing:
    """Of whoever leads: `cluster` refuses the writes of others. That it can't write stops nothing."""

    def __init__(self, cluster: Cluster, clock: Clock, namespace: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace
        self._told: Ways | None = None
        self._again = 0.0
        self._trouble = ""

    async def tell(self, ways: Ways) -> None:
        """To be called whenever they may have changed. Raises LeaseLost."""
        now = self._clock.monotonic()
        if ways == self._told and now < self._again:
            return
        self._told, self._again = ways, now + LOOKS_SECONDS
        try:
            for name, data in written(ways).items():
                await self._put(Key(self._namespace, name), data)
        except (AlreadyExists, Conflict):
            # Who led before, or somebody who edits, was quicker: their word stands there until we look again.
            self._again = now + AGAIN_SECONDS
        except ApiError as error:
            self._again = now + AGAIN_SECONDS
            if str(error) != self._trouble:
                why = "`tarragon why` assumes the defaults"
                log.warning("the operator's policy and rules can't be published", error=str(error), without=why)
            self._trouble = str(error)
        else:
            self._trouble = ""

    async def _put(self, key: Key, data: Data) -> None:
        try:
            found = await self._cluster.get(WHOLE, key)
        except NotFound:
            await self._cluster.create(WHOLE, _whole(key, data))
            return
        before: Mapping[str, str] = found.get("data") or {}
        if before != data:
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "data": {**dict.fromkeys(before), **data}}
            await self._cluster.patch(WHOLE, key, patch)


def _whole(key: Key, data: Data) -> Mapping[str, object]:
    labels = {"app.kubernetes.io/name": "tarragon"}
    metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
    return {"apiVersion": WHOLE.api_version, "kind": WHOLE.kind, "metadata": metadata, "data": data}
