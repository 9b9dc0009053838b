"""The interface of caches for their readers: objects, change events, the health of the watch, and indexes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tarragon.client.errors import ApiError
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")
V = TypeVar("V", bound=Hashable)

Handler = Callable[[Key, T | None, T | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A failure of a cache that belongs in a log. The cache itself carries on.

    `key` is set if one object can't be decoded as the cache's type. `pause` is the time until the next attempt.
    """

    resource: str
    error: Exception
    key: Key | None = None
    pause: float = 0.0

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.resource} {self.key} can't be decoded and is ignored: {self.error}"
        return f"{self.resource}: {self.error}; next attempt in {self.pause:.1f} s"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The server responds again, `seconds` after the first Trouble."""

    resource: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.resource}: the server responds again after {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Failing:
    """A lasting failure of the server. `since` is in monotonic seconds of the clock."""

    error: ApiError
    since: float


class Live(Protocol[T]):
    """The interface of a `Cache`, or of several that are read as one. See `Cache` for the methods."""

    @property
    def resource(self) -> Resource[T]: ...

    @property
    def objects(self) -> Mapping[Key, T]: ...

    @property
    def is_synced(self) -> bool: ...

    @property
    def failing(self) -> Failing | None: ...

    @property
    def recovered(self) -> float: ...

    async def synced(self) -> None: ...

    def learn(self, found: bytes) -> None: ...

    def subscribe(self, handler: Handler[T]) -> None: ...

    def on_trouble(self, handler: Callable[[Trouble], None]) -> None: ...

    def on_recovery(self, handler: Callable[[Recovery], None]) -> None: ...

    async def run(self) -> None: ...


class Index(Generic[T, V]):
    """Indexes the keys of a cache by the values of a function: `Index(pods, controllers).keys(job.as_owner)`.

    Create it before you subscribe handlers that read it, because handlers are called in the order of subscription.
    """

    def __init__(self, cache: Live[T], values_of: Callable[[T], Iterable[V]]) -> None:
        self._values_of = values_of
        self._keys: dict[V, set[Key]] = {}
        cache.subscribe(self._update)

    def keys(self, value: V) -> Collection[Key]:
        """The keys with that value, unordered. The result is a copy that does not follow the cache."""
        return frozenset(self._keys.get(value, ()))

    def count(self, value: V) -> int:
        """The number of keys with that value, without copying them."""
        return len(self._keys.get(value, ()))

    def _update(self, key: Key, old: T | None, new: T | None) -> None:
        before = set() if old is None else set(self._values_of(old))
        after = set() if new is None else set(self._values_of(new))
        for value in before - after:
            keys = self._keys[value]
            keys.discard(key)
            if not keys:
                del self._keys[value]
        for value in after - before:
            self._keys.setdefault(value, set()).add(key)
