"""Answers reads from memory: get, list with selectors and pagination, and the start of a watch."""

from __future__ import annotations

import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import ListOptions, ListPage, RequestTarget, WatchOptions
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, unsupported
from tarragon.localcluster.storage.encoding import encode_list_item, parse_resource_version
from tarragon.localcluster.storage.selectors import Matcher, matcher
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.storage.watch import Watch, WatchScope
from tarragon.localcluster.storage.watch_cache import ObjectKey, StoredObject, WatchCache

_MAX_SNAPSHOTS = 4
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - the version of continue tokens
_NAME_FIELD = "metadata.name="
_PLAIN_NAME = re.compile(r"[-a-z0-9.]+")


@dataclass(frozen=True, slots=True)
class _Position:
    """The start of a page: the revision to read, and the key to continue after."""

    revision: int
    after: ObjectKey | None


class _ContinueToken(msgspec.Struct):
    """The content of a continue token, as in a kube-apiserver: version, revision, and last key of the previous page."""

    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class EncodedItems(Sequence[bytes]):
    """The items of a list, encoded on access: encoding thousands at once would dominate the server's memory."""

    _served: ServedKind
    _found: Sequence[StoredObject]

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> EncodedItems: ...

    def __getitem__(self, index: int | slice) -> bytes | EncodedItems:
        if isinstance(index, slice):
            return EncodedItems(self._served, self._found[index])
        return encode_list_item(self._found[index].body, self._served)

    def __iter__(self) -> Iterator[bytes]:
        return (encode_list_item(stored.body, self._served) for stored in self._found)


class Reader:
    """Serves get, list and watch from committed state, without waiting."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, int], WatchCache] = OrderedDict()

    def get(self, target: RequestTarget) -> StoredObject:
        """Raises NotFound."""
        stored = self._store.watch_cache(target.served.storage_name).objects.get((target.namespace, target.name))
        if stored is None:
            raise errors.not_found(target.served, target.name)
        return stored

    def list(self, target: RequestTarget, options: ListOptions) -> ListPage:
        position = self._position(options)
        matches = _matcher(target.served, options.labels, options.fields)
        shelf = self._as_of(target.served.storage_name, position.revision)
        limit = max(0, options.limit)
        found: list[StoredObject] = []
        remaining = 0
        for stored in _candidates(shelf, target, options, position.after):
            if not matches(stored):
                continue
            if limit and len(found) == limit:
                remaining += 1
                if options.labels or options.fields:
                    break  # with selectors no remaining count is reported, so one more match is enough
            else:
                found.append(stored)
        return ListPage(
            served=target.served,
            items=EncodedItems(target.served, found),
            resource_version=str(position.revision),
            continue_token=_token(position.revision, found[-1].key) if remaining else "",
            remaining=0 if options.labels or options.fields else remaining,
        )

    def watch(self, target: RequestTarget, options: WatchOptions) -> Watch:
        fields = options.fields
        if target.name:
            fields = f"{fields},{_NAME_FIELD}{target.name}" if fields else f"{_NAME_FIELD}{target.name}"
        sight = WatchScope(
            served=target.served,
            namespace=target.namespace,
            matches=_matcher(target.served, options.labels, fields),
            has_bookmarks=options.allow_bookmarks,
        )
        requested = _revision(options.resource_version)
        if requested > self._store.revision:
            # An earlier incarnation of this cluster issued it. A watch would wait for it in silence.
            raise errors.too_large_to_watch(requested, self._store.revision)
        watch = Watch(self._store, sight, requested)
        if not requested or options.send_initial_events:
            watch.send_initial_events(is_announced=options.send_initial_events and options.allow_bookmarks)
        elif requested < self._store.oldest_revision:
            raise errors.too_old(requested, self._store.oldest_revision)
        return watch

    def forget_snapshots(self) -> None:
        """Drop cached past states, which later pages rebuild when they need them."""
        self._snapshots.clear()

    def _position(self, options: ListOptions) -> _Position:
        """Raises ResourceExpired for a revision outside the history, BadRequest and Invalid for bad parameters."""
        requested = _revision(options.resource_version)
        if options.continue_token:
            if requested:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            position = _parsed_token(options.continue_token)
            if position.revision < self._store.oldest_revision or position.revision > self._store.revision:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list result. You must start "
                    "a new list without the continue parameter."
                )
            return position
        _check_version_match(options.resource_version, options.resource_version_match)
        if requested > self._store.revision:
            raise errors.too_large(requested, self._store.revision)
        if options.resource_version_match == "Exact":
            if requested < self._store.oldest_revision:
                raise errors.expired(f"The resourceVersion for the provided list is too old: {requested}")
            return _Position(requested, None)
        return _Position(self._store.revision, None)

    def _as_of(self, kind: str, revision: int) -> WatchCache:
        shelf = self._store.watch_cache(kind)
        if revision == self._store.revision or not shelf.changes_after(revision):
            return shelf
        snapshot = self._snapshots.get((kind, revision))
        if snapshot is None:
            snapshot = self._snapshots[kind, revision] = shelf.snapshot_at(revision)
            if len(self._snapshots) > _MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return snapshot


def _matcher(served: ServedKind, labels: str, fields: str) -> Matcher:
    fields = served.view.to_stored_field_selector(fields) if served.view is not None else fields
    return matcher(served.storage_name, labels, fields, served.selectable)


def _candidates(
    shelf: WatchCache, target: RequestTarget, options: ListOptions, after: ObjectKey | None
) -> Iterable[StoredObject]:
    """The objects to match, in order. A selector by name needs at most one lookup."""
    name = _only_name(options.fields)
    if name and (target.namespace or not target.served.namespaced):
        stored = shelf.objects.get((target.namespace, name))
        return [stored] if stored is not None and (after is None or stored.key > after) else []
    return shelf.objects_after(target.namespace, after)


def _only_name(fields: str) -> str:
    """The name of a field selector that selects only by name, else empty. Names contain nothing to escape."""
    name = fields.removeprefix(_NAME_FIELD)
    return "" if name == fields or not _PLAIN_NAME.fullmatch(name) else name


def _token(revision: int, last: ObjectKey) -> str:
    content = encode(_ContinueToken(v=_TOKEN_VERSION, rv=revision, start=f"{last[0]}/{last[1]}"))
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _parsed_token(text: str) -> _Position:
    try:
        content = decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), _ContinueToken)
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    namespace, slash, name = content.start.partition("/")
    if content.v != _TOKEN_VERSION or not slash:
        raise errors.bad_request("invalid continue token: continue key is not valid: it comes from another server")
    return _Position(content.rv, (namespace, name))


def _revision(text: str) -> int:
    """The revision of a resourceVersion, 0 for an empty one. Raises BadRequest."""
    if not text:
        return 0
    version = parse_resource_version(text)
    if version is None:
        words = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.bad_request(words)
    return version


def _check_version_match(version: str, match: str) -> None:
    fault: FieldError | None = None
    if match and not version:
        fault = forbidden_value(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    elif match not in {"", "Exact", "NotOlderThan"}:
        fault = unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
    elif match == "Exact" and version == "0":
        fault = forbidden_value(
            "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        )
    if fault is not None:
        raise errors.invalid_options("ListOptions", [fault])
