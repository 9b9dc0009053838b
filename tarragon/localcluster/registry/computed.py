"""Kinds of which nothing is stored: the answer is made when somebody asks. Reviews of access, metrics.

They are in discovery and OpenAPI like all others; no controller ever lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.identity import User
from tarragon.localcluster.api.requests import Json, ListOptions, Target

FullName = tuple[str, str]
"""Group and plural; of a subresource `serviceaccounts/token`."""


class Computed:
    """What answers for one such kind. Each method refuses; a kind offers those that its verbs name."""

    async def create(self, target: Target, body: Json, user: User) -> Json:  # noqa: ARG002 - for those that override
        """POST: the answer is 201 with the object. `body` is the caller's to change."""
        raise errors.method_not_allowed()

    async def get(self, target: Target) -> Json:  # noqa: ARG002 - as above
        """Raises NotFound."""
        raise errors.method_not_allowed()

    async def list(self, target: Target, options: ListOptions) -> Sequence[Json]:  # noqa: ARG002 - as above
        """All objects that `options` select, in the target's namespace."""
        raise errors.method_not_allowed()


@dataclass(frozen=True, slots=True)
class ComputedKinds:
    """Who answers for which kind."""

    by_name: Mapping[FullName, Computed] = field(default_factory=dict)

    def beside(self, others: Mapping[FullName, Computed]) -> ComputedKinds:
        """These and others."""
        return ComputedKinds({**others, **self.by_name})

    def of(self, target: Target) -> Computed:
        """Raises ServiceUnavailable for a kind that is served, but not by this process."""
        answering = self.by_name.get(_full_name(target))
        if answering is None:
            raise _nobody_answers(target)
        return answering

    def has(self, target: Target) -> bool:
        """Of a subresource: whether it is one of these, though its kind is stored."""
        return _full_name(target) in self.by_name


def _full_name(target: Target) -> FullName:
    plural = target.served.plural
    return target.served.group, f"{plural}/{target.subresource}" if target.subresource else plural


def _nobody_answers(target: Target) -> ApiError:
    words = f"nothing in this process answers for {target.served.full_name}"
    return errors.failure(503, "ServiceUnavailable", words)


def listing(target: Target, items: Sequence[Mapping[str, Any]]) -> Json:
    """The list as a client gets it."""
    served = target.served
    return {
        "kind": served.list_kind or f"{served.kind}List",
        "apiVersion": served.api_version,
        "metadata": {},
        "items": list(items),
    }
