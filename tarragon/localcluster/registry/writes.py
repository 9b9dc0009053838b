"""Deciding writes against the newest state there is, committed or queued, and telling nobody before it is durable."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import decode, timestamp
from tarragon.localcluster.admission.following import Follower
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import FieldValidation, Json, WriteOptions
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.registry.strategy import Author
from tarragon.localcluster.storage.database import WriteFailedError
from tarragon.localcluster.storage.history import Change, ObjectKey, Stored
from tarragon.localcluster.storage.objects import encoded, in_version
from tarragon.localcluster.storage.store import Store

T = TypeVar("T")

NO_PRECONDITION = DeleteOptions()

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_EVEN_BYTES = 256 - 256 % len(_SUFFIX_LETTERS)
"""Random bytes below this choose every letter equally often."""
_SUFFIX_LENGTH = 5
_LONGEST_PREFIX = 58
_MOST_BYTES = 3 * 2**19
"""What etcd takes: an object that is stored here can be stored in any cluster."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """What a write comes to: the changes to store (none: everything is so already), and the answer then."""

    changes: Sequence[Change]
    answer: T


class Writes:
    """The parts that all writes share."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.followers: Sequence[Follower] = ()
        self._clock = clock

    async def run(self, decide: Callable[[], Decision[T]], options: WriteOptions) -> T:
        """Decide, store with all that follows from it, answer. Raises what `decide` and the followers raise, and 507
        when the disk does not take it.

        An answer that stores nothing waits for what it rests on: a conflict with a write that then fails would be
        a lie.
        """
        try:
            decision = decide()
            more = [change for one in self.followers for change in one.following(decision.changes)]
        except ApiError:
            await self._settle()
            raise
        except (RecursionError, OverflowError) as error:
            raise errors.bad_request(f"the object cannot be stored: {error}") from error
        if options.dry_run or not decision.changes:
            await self._settle()
        else:
            try:
                await self.store.commit([*decision.changes, *more] if more else decision.changes)
            except WriteFailedError as error:
                raise errors.insufficient_storage(str(error)) from error
        return decision.answer

    def now(self) -> dt.datetime:
        return self._clock.now()

    def author(self, options: WriteOptions, subresource: str = "") -> Author:
        return Author(manager=options.field_manager, now=timestamp(self.now()), subresource=subresource)

    def latest(self, served: Served, key: ObjectKey) -> Stored:
        """Raises NotFound."""
        stored = self.store.latest(served.shelf, key)
        if stored is None:
            raise errors.not_found(served, key[1])
        return stored

    def change(
        self, served: Served, thing: Mapping[str, object], before: Stored | None, options: WriteOptions
    ) -> Change:
        """The next revision of an object; of a dry run it has the revision it had."""
        return self._change(served, dict(thing), before, options, is_gone=False)

    def removal(self, served: Served, thing: Mapping[str, object], before: Stored, options: WriteOptions) -> Change:
        """The end of an object, with its last state."""
        return self._change(served, dict(thing), before, options, is_gone=True)

    def _change(
        self, served: Served, thing: Json, before: Stored | None, options: WriteOptions, *, is_gone: bool
    ) -> Change:
        if (view := served.view) is not None:
            served, thing = view.of, view.kept(thing)
        metadata = thing["metadata"]
        key = (str(metadata.get("namespace") or ""), str(metadata["name"]))
        unchanged = before.revision if before is not None else 0
        revision = unchanged if options.dry_run else self.store.next_revision()
        body = encoded(served, thing, revision)
        if len(body) > _MOST_BYTES and not is_gone:
            raise errors.too_large_to_store()
        state = self.store.stored(served.full_name, key, revision, thing, body)
        return Change(served.full_name, key, before, state, is_gone)

    async def _settle(self) -> None:
        if not await self.store.settled():
            raise errors.insufficient_storage("a write that this one depends on has failed")


def opened(stored: Stored, served: Served) -> Json:
    """A stored object, decoded anew in a served version: whoever opens it may change it."""
    thing: Json = decode(in_version(stored.body, served), dict)
    return thing


class _RandomBytes:
    """Fetched for many at once: each fetch gives the interpreter away to the thread that commits, and getting it back
    takes a hundred times as long as the fetch.
    """

    def __init__(self) -> None:
        self._left = b""

    def take(self, count: int) -> bytes:
        if len(self._left) < count:
            self._left = os.urandom(4096)
        taken, self._left = self._left[:count], self._left[count:]
        return taken


_random = _RandomBytes()


def new_uid() -> str:
    """A random UUID, version 4."""
    drawn = _random.take(16).hex()
    variant = "89ab"[int(drawn[16], 16) % 4]
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"


def name_for(metadata: Json) -> None:
    """Make up, in place, the name of an object that has only a generateName."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        suffix = "".join(_random_letter() for _ in range(_SUFFIX_LENGTH))
        metadata["name"] = prefix[:_LONGEST_PREFIX] + suffix


def _random_letter() -> str:
    while (drawn := _random.take(1)[0]) >= _EVEN_BYTES:
        pass
    return _SUFFIX_LETTERS[drawn % len(_SUFFIX_LETTERS)]


def warnings_for(served: Served, unknown: Sequence[str], options: WriteOptions) -> tuple[str, ...]:
    """What to warn of: fields that the kind does not know or that came twice. Raises BadRequest when that is strict."""
    told = [*options.doubles, *(f'unknown field "{path}"' for path in unknown)]
    if told and options.field_validation is FieldValidation.STRICT:
        raise errors.not_handled(served, f"strict decoding error: {', '.join(told)}")
    return tuple(told) if options.field_validation is FieldValidation.WARN else ()
