"""Decides writes against the latest state, committed or queued, and answers them when they are durable."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import decode, format_time
from tarragon.localcluster.admission.quota import Quotas
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import FieldValidation, Json, WriteOptions
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.strategy import FieldManager
from tarragon.localcluster.storage.database import WriteFailedError
from tarragon.localcluster.storage.encoding import encode_in_version, encode_stored
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.storage.watch_cache import Change, ObjectKey, StoredObject

T = TypeVar("T")

NO_PRECONDITION = DeleteOptions()

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_UNBIASED_LIMIT = 256 - 256 % len(_SUFFIX_LETTERS)
"""Random bytes below this limit select every letter equally often."""
_SUFFIX_LENGTH = 5
_MAX_PREFIX_LENGTH = 58
_MAX_OBJECT_BYTES = 3 * 2**19
"""etcd's limit, so that any cluster can store the objects of this one."""


@dataclass(frozen=True, slots=True)
class WriteDecision(Generic[T]):
    """The outcome of a write: the changes to store, none if nothing changes, and the answer."""

    changes: Sequence[Change]
    answer: T


class WriteTransaction:
    """What all writes share: running decisions, and building changes."""

    def __init__(self, store: Store, quotas: Quotas, clock: Clock) -> None:
        self.store = store
        self._quotas = quotas
        self._clock = clock

    async def run(self, decide: Callable[[], WriteDecision[T]], options: WriteOptions) -> T:
        """Decide a write, store it with the new counts of quotas, and return the answer.

        Raises what `decide` raises, 403 for what a quota does not allow, and 507 if the disk rejects the write. An
        answer that stores nothing waits for the queued writes that it depends on: a conflict with a write that then
        fails would be wrong.
        """
        try:
            decision = decide()
            counts = self._quotas.following(decision.changes)
        except ApiError:
            await self._wait_for_queued()
            raise
        except (RecursionError, OverflowError) as error:
            raise errors.bad_request(f"the object cannot be stored: {error}") from error
        if options.dry_run or not decision.changes:
            await self._wait_for_queued()
        else:
            try:
                await self.store.commit([*decision.changes, *counts])
            except WriteFailedError as error:
                raise errors.insufficient_storage(str(error)) from error
        return decision.answer

    def now(self) -> dt.datetime:
        return self._clock.now()

    def field_manager(self, options: WriteOptions, subresource: str = "") -> FieldManager:
        return FieldManager(manager=options.field_manager, now=format_time(self.now()), subresource=subresource)

    def latest(self, served: ServedKind, key: ObjectKey) -> StoredObject:
        """Raises NotFound."""
        stored = self.store.pending_state(served.storage_name, key)
        if stored is None:
            raise errors.not_found(served, key[1])
        return stored

    def change(
        self, served: ServedKind, thing: Mapping[str, object], before: StoredObject | None, options: WriteOptions
    ) -> Change:
        """The change to the next revision of an object. A dry run keeps the revision."""
        return self._change(served, dict(thing), before, options, is_gone=False)

    def removal(
        self, served: ServedKind, thing: Mapping[str, object], before: StoredObject, options: WriteOptions
    ) -> Change:
        """The change that removes an object. `thing` is its last state."""
        return self._change(served, dict(thing), before, options, is_gone=True)

    def _change(
        self, served: ServedKind, thing: Json, before: StoredObject | None, options: WriteOptions, *, is_gone: bool
    ) -> Change:
        if (view := served.view) is not None:
            served, thing = view.of, view.to_stored(thing)
        metadata = thing["metadata"]
        key = (str(metadata.get("namespace") or ""), str(metadata["name"]))
        unchanged = before.revision if before is not None else 0
        revision = unchanged if options.dry_run else self.store.next_revision()
        body = encode_stored(served, thing, revision)
        if len(body) > _MAX_OBJECT_BYTES and not is_gone:
            raise errors.too_large_to_store()
        state = self.store.new_revision(served.full_name, key, revision, thing, body)
        return Change(served.full_name, key, before, state, is_gone)

    async def _wait_for_queued(self) -> None:
        if not await self.store.wait_for_queued():
            raise errors.insufficient_storage("a write that this one depends on has failed")


def decode_stored(stored: StoredObject, served: ServedKind) -> Json:
    """Decode a stored object in a served version. The result is new, so the caller may change it."""
    thing: Json = decode(encode_in_version(stored.body, served), dict)
    return thing


class _RandomBytes:
    """Random bytes, fetched in blocks: each fetch releases the GIL to the committing thread, and reacquiring it takes
    a hundred times as long as the fetch.
    """

    def __init__(self) -> None:
        self._buffer = b""

    def take(self, count: int) -> bytes:
        if len(self._buffer) < count:
            self._buffer = os.urandom(4096)
        block, self._buffer = self._buffer[:count], self._buffer[count:]
        return block


_random = _RandomBytes()


def new_uid() -> str:
    """A random UUID, version 4."""
    drawn = _random.take(16).hex()
    variant = "89ab"[int(drawn[16], 16) % 4]
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"


def generate_name(metadata: Json) -> None:
    """Generate, in place, the name of an object that has only a generateName."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        suffix = "".join(_random_letter() for _ in range(_SUFFIX_LENGTH))
        metadata["name"] = prefix[:_MAX_PREFIX_LENGTH] + suffix


def _random_letter() -> str:
    while (drawn := _random.take(1)[0]) >= _UNBIASED_LIMIT:
        pass
    return _SUFFIX_LETTERS[drawn % len(_SUFFIX_LETTERS)]


def field_warnings(served: ServedKind, unknown: Sequence[str], options: WriteOptions) -> tuple[str, ...]:
    """Warnings about unknown and duplicate fields. Raises BadRequest under strict validation."""
    warnings = [*options.duplicate_fields, *(f'unknown field "{path}"' for path in unknown)]
    if warnings and options.field_validation is FieldValidation.STRICT:
        raise errors.cannot_decode(served, f"strict decoding error: {', '.join(warnings)}")
    return tuple(warnings) if options.field_validation is FieldValidation.WARN else ()
