"""Kinds whose objects are computed for each request instead of stored, such as access reviews and metrics.

They appear in discovery and OpenAPI like all others. No controller lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, ListOptions, RequestTarget
from tarragon.localcluster.api.user import User

FullName = tuple[str, str]
"""Group and plural. A subresource is written as `serviceaccounts/token`."""


class ComputedKind:
    """The handler of a computed kind. Every method is refused by default; a handler overrides those of its verbs."""

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:  # noqa: ARG002 - for overrides
        """POST; answered with 201 and the object. A handler may change `body`."""
        raise errors.method_not_allowed()

    async def get(self, target: RequestTarget) -> Json:  # noqa: ARG002 - as above
        """Raises NotFound."""
        raise errors.method_not_allowed()

    async def list(self, target: RequestTarget, options: ListOptions) -> Sequence[Json]:  # noqa: ARG002 - as above
        """All objects that `options` select, in the target's namespace."""
        raise errors.method_not_allowed()


@dataclass(frozen=True, slots=True)
class ComputedKinds:
    """The handlers of all computed kinds."""

    by_name: Mapping[FullName, ComputedKind] = field(default_factory=dict)

    def handler_of(self, target: RequestTarget) -> ComputedKind:
        """The handler of the target. Raises Unavailable for a kind that this process has no handler for."""
        handler = self.by_name.get(_full_name(target))
        if handler is None:
            raise _no_handler(target)
        return handler

    def serves(self, target: RequestTarget) -> bool:
        """Whether a handler serves the target, which may be a subresource of a stored kind."""
        return _full_name(target) in self.by_name


NOTHING_COMPUTED = ComputedKinds()


def _full_name(target: RequestTarget) -> FullName:
    plural = target.served.plural
    return target.served.group, f"{plural}/{target.subresource}" if target.subresource else plural


def _no_handler(target: RequestTarget) -> ApiError:
    words = f"nothing in this process serves {target.served.full_name}"
    return errors.failure(503, "ServiceUnavailable", words)


def list_object(target: RequestTarget, items: Sequence[Mapping[str, Any]]) -> Json:
    """The list object of these items."""
    served = target.served
    return {
        "kind": served.list_kind or f"{served.kind}List",
        "apiVersion": served.api_version,
        "metadata": {},
        "items": list(items),
    }
