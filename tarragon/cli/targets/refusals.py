"""What an API server's refusal means to somebody at a prompt: whose it is, and what to do about it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NotInstalled
from tarragon.cli.jobview.target import Prompt
from tarragon.client.errors import ApiError, Forbidden, NoCredentials, NotFound, TooManyRequests, Unauthorized
from tarragon.kube.meta import Json

_NOT_ALLOWED = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"')
_PLACE = re.compile(r'in the namespace "(?P<namespace>[^"]*)"')

Words = Callable[[TarragonError, str, Prompt], TarragonError]


def worded(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:
    """`name` is the cluster's, as users see it. What already says everything stays as it is."""
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words(error, name, prompt)
    return error


def is_kind_missing(error: NotFound) -> bool:
    """Whether the kind itself is not served: of an object that is not there the server says the name."""
    details: Json = error.status.get("details") or {}
    return not details.get("name")


def _unauthorized(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:
    return TarragonError(
        f"{name} does not know who you are",
        why=f"it says: {error.what}",
        remedy=f"log in to it again, or name another context; `{prompt.program} check` looks again",
    )


def _forbidden(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:
    """A quota and an admission webhook refuse with the same code: their own words say best what to do."""
    match, place = _NOT_ALLOWED.search(error.what), _PLACE.search(error.what)
    if match is None:
        return TarragonError(f"{name} refuses it", why=error.what)
    where = f" in namespace {place['namespace']}" if place else " in all namespaces"
    return TarragonError(
        f"{match['user']} may not {match['verb']} {match['resource']}{where} on {name}",
        why="the cluster's roles do not allow it",
        remedy=f"ask whoever runs it, or name another namespace with -n; `{prompt.program} check` says what you may do",
    )


def _not_installed(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:  # noqa: ARG001 - as the others
    return TarragonError(error.what, why=f"{name} serves no such kind", remedy=error.remedy)


def _not_found(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:
    if not isinstance(error, NotFound):
        return error
    if is_kind_missing(error):
        return _not_installed(NotInstalled(), name, prompt)
    details: Json = error.status.get("details") or {}
    if details.get("kind") == "namespaces":
        missing = details.get("name")
        return TarragonError(
            f"there is no namespace {missing} on {name}",
            remedy=f"name another one with -n, or make it: kubectl create namespace {missing}",
        )
    return TarragonError(error.what, why=f"says {name}")


def _too_many(error: TarragonError, name: str, prompt: Prompt) -> TarragonError:  # noqa: ARG001 - as the others
    return TarragonError(f"{name} is too busy", why=error.what, remedy="try again in a moment")


_WORDS: Sequence[tuple[type[TarragonError], Words]] = (
    (NotInstalled, _not_installed),
    (NoCredentials, lambda error, *_: error),  # nobody has refused anything yet; it says what to do
    (Unauthorized, _unauthorized),
    (Forbidden, _forbidden),
    (NotFound, _not_found),
    (TooManyRequests, _too_many),
    (ApiError, lambda error, name, _: TarragonError(error.what, why=f"says {name}")),
)
