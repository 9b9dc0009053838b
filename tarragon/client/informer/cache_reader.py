"""What readers see of live copies of objects: what is there, each change of it, and whether the server answers."""

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
    """Something that a person should read in a log; the cache itself goes on.

    `key` is set when one object can't be read as the type that was asked for. `pause` is the time to the next attempt.
    """

    resource: str
    error: Exception
    key: Key | None = None
    pause: float = 0.0

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.resource} {self.key} can't be read and is left out: {self.error}"
        return f"{self.resource}: {self.error}; next attempt in {self.pause:.1f} s"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The server answers again, that many seconds after the first Trouble."""

    resource: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.resource}: the server answers again after {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Failing:
    """The server fails in this way, without a break since that moment of the clock's monotonic seconds."""

    error: ApiError
    since: float


class Live(Protocol[T]):
    """What readers see of a `Cache`, or of several that are read as one; each method is as described there."""

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
    """The keys of a cache's objects by what a function says of each: `Index(pods, controllers).keys(job.as_owner)`.

    Make it before subscribing handlers that read it: subscribers are called in order.
    """

    def __init__(self, cache: Live[T], values_of: Callable[[T], Iterable[V]]) -> None:
        self._values_of = values_of
        self._keys: dict[V, set[Key]] = {}
        cache.subscribe(self._follow)

    def keys(self, value: V) -> Collection[Key]:
        """In no order. A copy: it stays as it is when the cache moves on."""
        return frozenset(self._keys.get(value, ()))

    def count(self, value: V) -> int:
        """How many `keys` there would be, without copying them."""
        return len(self._keys.get(value, ()))

    def _follow(self, key: Key, old: T | None, new: T | None) -> None:
        before = set() if old is None else set(self._values_of(old))
        after = set() if new is None else set(self._values_of(new))
        for value in before - after:
            kept = self._keys[value]
            kept.discard(key)
            if not kept:
                del self._keys[value]
        for value in after - before:
            self._keys.setdefault(value, set()).add(key)
