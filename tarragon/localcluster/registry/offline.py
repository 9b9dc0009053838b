"""The client that reads the store of a stopped server. It does not import the server, and is there at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, TypeVar

from tarragon.client.errors import NotFound, unavailable
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.storage.database import DatabaseReader
from tarragon.localcluster.storage.selectors import index_entry, matcher
from tarragon.localcluster.storage.watch_cache import StoredObject

T = TypeVar("T")


class OfflineCluster:
    """The reads of `Client` from the store of a stopped server. Everything else raises Unavailable."""

    is_offline: Final = True

    def __init__(self, reading: DatabaseReader) -> None:
        self._reading = reading

    @classmethod
    def open(cls, path: Path) -> OfflineCluster:
        """Raises TarragonError if the store is missing, in use, corrupt or newer than this program."""
        return cls(DatabaseReader.open(path))

    async def get(self, resource: Resource[T], key: Key) -> T:
        bodies = self._reading.bodies(resource.full_name, key.namespace, key.name)
        if not bodies:
            message = f'{resource.full_name} "{key.name}" not found'
            raise NotFound(
                {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": message}
            )
        return _decoded(resource, bodies[0])

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        matches = matcher(resource.full_name, selection.label_selector, selection.field_selector)
        bodies = self._reading.bodies(resource.full_name, selection.namespace)
        chosen = [_decoded(resource, body) for body in bodies if matches(_as_stored(resource, body))]
        return ObjectList(chosen, str(self._reading.revision))

    def watch(self, *_: object, **__: object) -> AsyncIterator[Any]:
        raise _not_running("watch")

    def stream_list(self, *_: object) -> AsyncIterator[Any]:
        raise _not_running("watch")

    async def create(self, *_: object, **__: object) -> Any:
        raise _not_running("create")

    async def patch(self, *_: object, **__: object) -> Any:
        raise _not_running("change")

    async def delete(self, *_: object, **__: object) -> None:
        raise _not_running("delete")

    def pod_log(self, *_: object, **__: object) -> AsyncIterator[bytes]:
        raise _not_running("read logs")

    def close(self) -> None:
        self._reading.close()


def _decoded(resource: Resource[T], body: bytes) -> T:
    """Decode a stored object in the requested version, which may differ from the stored one."""
    thing = decode(body, dict)
    if thing.get("apiVersion") == resource.api_version:
        return decode(body, resource.model)
    return decode(encode({**thing, "apiVersion": resource.api_version}), resource.model)


def _as_stored(resource: Resource[T], body: bytes) -> StoredObject:
    thing = decode(body, dict)
    labels, fields = index_entry(resource.full_name, thing)
    key = (thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
    return StoredObject(key, 0, body, labels, fields, 0)


def _not_running(action: str) -> Exception:
    return unavailable(f"cannot {action}: the local cluster is not running; `tarragon up` starts it")
