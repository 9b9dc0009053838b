"""The paths and queries of requests, and the pages of lists: what every client of the API has in common. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tarragon.client.errors import BadRequest, unavailable
from tarragon.client.port import Selector
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

PAGE = 1000
"""The objects per page of a list: twice kubectl's chunk size. A page of pods is then about two megabytes."""
PAGED_ATTEMPTS = 2
"""How often a list is read in pages. On a busy server the first page may expire before the last one is requested, each
time: the list is then read without pages.

Servers compact their history every five minutes, so a second attempt has the time that the first one lacked.
"""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct):
    """A page of a list. The items stay undecoded, so that the nesting limit applies to each one separately."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None  # Go encodes an empty list as null


def decode_response(data: bytes, model: type[T], url: str) -> T:
    """Decodes what the server of that URL sent. Raises Unavailable for what can't be decoded."""
    try:
        return decode(data, model)
    except msgspec.DecodeError as error:
        raise unavailable(f"the response of {url} can't be decoded: {error}") from error


def collection_path(resource: Resource[T], namespace: str) -> str:
    _check_path_segment(namespace)
    return resource.path(namespace)


def object_path(resource: Resource[T], key: Key, subresource: str = "") -> str:
    if not key.name:
        # Without a name the path would be that of the collection, and a delete would delete all objects.
        raise _bad_request(f"resource name may not be empty: {resource.full_name} in {key.namespace or 'the cluster'}")
    _check_path_segment(key.name)
    _check_path_segment(key.namespace)
    return resource.path(key.namespace, key.name, subresource)


def _check_path_segment(name: str) -> None:
    if "/" in name or name in {".", ".."}:
        raise _bad_request(f'invalid resource name "{name}": may not contain "/" or be "." or ".."')


def _bad_request(message: str) -> BadRequest:
    return BadRequest({"kind": "Status", "status": "Failure", "code": 400, "reason": "BadRequest", "message": message})


def selector_query(selection: Selector) -> dict[str, str]:
    selectors = {"labelSelector": selection.label_selector, "fieldSelector": selection.field_selector}
    return {name: value for name, value in selectors.items() if value}
