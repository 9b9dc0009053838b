"""The interface of caches for their readers: objects, change events, the health of the watch, and indexes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from tarragon.client.errors import ApiError
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")
V = TypeVar("V", bound=Hashable)

EventHandler = Callable[[Key, T | None, T | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheError:
    """A failure of a cache that belongs in a log. The cache itself carries on.

    `key` is set if one object can't be decoded as the cache's type. `retry_after` is the time until the next attempt.
    """

    resource: str
    error: Exception
    key: Key | None = None
    retry_after: float = 0.0

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.resource} {self.key} can't be decoded and is ignored: {self.error}"
        return f"{self.resource}: {self.error}; next attempt in {self.retry_after:.1f} s"


@dataclass(frozen=True, slots=True)
class CacheRecovery:
    """The server responds again, `seconds` after the first CacheError."""

    resource: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.resource}: the server responds again after {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class LostWatch:
    """A watch that was open and did not deliver a change that the server had answered to a write. It was replaced.

    The reason is `deaf` if the watch delivered no change at all for `seconds`, and `gap` if it delivered only later
    ones. `lists_again` is true if a new list follows, and false if a new watch continues after the last change.
    """

    resource: str
    reason: Literal["deaf", "gap"]
    seconds: float = 0.0
    lists_again: bool = False

    def __str__(self) -> str:
        what = "missed a change" if self.reason == "gap" else f"delivered nothing for {self.seconds:g} s"
        then = "all objects are listed again" if self.lists_again else "a new watch continues after the last change"
        return f"{self.resource}: the watch {what}, although the server had answered a write; {then}"


@dataclass(frozen=True, slots=True)
class OngoingFailure:
    """A lasting failure of the server. `since` is in monotonic seconds of the clock."""

    error: ApiError
    since: float


class CacheReader(Protocol[T]):
    """The interface of a `Informer`, or of several that are read as one. See `Informer` for the methods."""

    @property
    def resource(self) -> Resource[T]: ...

    @property
    def objects(self) -> Mapping[Key, T]: ...

    @property
    def has_synced(self) -> bool: ...

    def has_synced_in(self, namespace: str) -> bool:
        """Whether the first list of this namespace has been processed completely."""
        ...

    @property
    def failure(self) -> OngoingFailure | None: ...

    @property
    def recovered_at(self) -> float: ...

    async def wait_for_sync(self) -> None: ...

    def apply_write(self, found: bytes) -> None: ...

    def add_event_handler(self, handler: EventHandler[T]) -> None: ...

    def on_error(self, handler: Callable[[CacheError], None]) -> None: ...

    def on_recovery(self, handler: Callable[[CacheRecovery], None]) -> None: ...

    def on_lost_watch(self, handler: Callable[[LostWatch], None]) -> None: ...

    async def run(self) -> None: ...


class KeyIndex(Generic[T, V]):
    """Indexes the keys of a cache by the values of a function: `KeyIndex(pods, controllers).keys(job.as_owner)`.

    Create it before you subscribe handlers that read it, because handlers are called in the order of subscription.
    """

    def __init__(self, cache: CacheReader[T], values_of: Callable[[T], Iterable[V]]) -> None:
        self._values_of = values_of
        self._keys: dict[V, set[Key]] = {}
        cache.add_event_handler(self._update)

    def keys(self, value: V) -> Collection[Key]:
        """The keys with that value, unordered. The result is a copy that does not follow the cache."""
        return frozenset(self._keys.get(value, ()))

    def count(self, value: V) -> int:
        """The number of keys with that value, without copying them."""
        return len(self._keys.get(value, ()))

    def values(self) -> Collection[V]:
        """All values that some key has, unordered. The result is a copy."""
        return frozenset(self._keys)

    def _update(self, key: Key, old: T | None, new: T | None) -> None:
        if old is None and new is not None:  # as for each object of the first list
            for value in self._values_of(new):
                self._keys.setdefault(value, set()).add(key)
            return
        before = set() if old is None else set(self._values_of(old))
        after = set() if new is None else set(self._values_of(new))
        for value in before - after:
            keys = self._keys[value]
            keys.discard(key)
            if not keys:
                del self._keys[value]
        for value in after - before:
            self._keys.setdefault(value, set()).add(key)
