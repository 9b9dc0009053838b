"""Publishes the operator's policy and rules in ConfigMaps, for `tarragon why` and other readers."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tarragon.plan.config.published import ConfigMapData, PublishedConfig, encode_config_maps

CHECK_SECONDS = 300.0
"""Seconds after which the ConfigMaps are checked again, so that edits and deletions by others are repaired."""
RETRY_SECONDS = 60.0
"""Seconds until a failed or conflicting write is retried."""

RAW_CONFIG_MAPS = CONFIG_MAPS.with_model(dict)
log = structlog.get_logger(__name__)


class ConfigPublisher:
    """Writes the ConfigMaps. Only the leader's writes pass `cluster`; a failure is logged and stops nothing."""

    def __init__(self, cluster: Client, clock: Clock, namespace: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace
        self._published: PublishedConfig | None = None
        self._next_check = 0.0
        self._last_error = ""

    async def publish(self, ways: PublishedConfig) -> None:
        """Publish the policy and rules if they changed or a check is due. Raises LeaseLost."""
        now = self._clock.monotonic()
        if ways == self._published and now < self._next_check:
            return
        self._published, self._next_check = ways, now + CHECK_SECONDS
        try:
            for name, data in encode_config_maps(ways).items():
                await self._put(Key(self._namespace, name), data)
        except (AlreadyExists, Conflict):
            # A previous leader or a user wrote at the same time; their content stays until the next check.
            self._next_check = now + RETRY_SECONDS
        except ApiError as error:
            self._next_check = now + RETRY_SECONDS
            if str(error) != self._last_error:
                why = "`tarragon why` assumes the defaults"
                log.warning("cannot publish the operator's policy and rules", error=str(error), without=why)
            self._last_error = str(error)
        else:
            self._last_error = ""

    async def _put(self, key: Key, data: ConfigMapData) -> None:
        try:
            existing = await self._cluster.get(RAW_CONFIG_MAPS, key)
        except NotFound:
            await self._cluster.create(RAW_CONFIG_MAPS, _config_map(key, data))
            return
        old_data: Mapping[str, str] = existing.get("data") or {}
        if old_data != data:
            version = {"resourceVersion": existing["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "data": {**dict.fromkeys(old_data), **data}}
            await self._cluster.patch(RAW_CONFIG_MAPS, key, patch)


def _config_map(key: Key, data: ConfigMapData) -> Mapping[str, object]:
    labels = {"app.kubernetes.io/name": "tarragon"}
    metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
    return {"apiVersion": RAW_CONFIG_MAPS.api_version, "kind": RAW_CONFIG_MAPS.kind, "metadata": metadata, "data": data}
