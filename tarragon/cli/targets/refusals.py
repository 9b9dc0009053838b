"""Translates the errors of an API server into messages with a remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NotInstalled
from tarragon.cli.jobview.target import CommandPrefix
from tarragon.client.errors import ApiError, CredentialsError, Forbidden, NotFound, TooManyRequests, Unauthorized
from tarragon.kube.meta import Json

_NOT_ALLOWED = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"')
_IN_NAMESPACE = re.compile(r'in the namespace "(?P<namespace>[^"]*)"')

Translation = Callable[[TarragonError, str, CommandPrefix], TarragonError]


def translate_error(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:
    """Returns the error as a message about the cluster `name`. An error without a translation is returned unchanged."""
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words(error, name, prompt)
    return error


def is_kind_missing(error: NotFound) -> bool:
    """Whether the kind itself is not served. For a missing object, the server's details have its name."""
    details: Json = error.status.get("details") or {}
    return not details.get("name")


def _unauthorized(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:
    return TarragonError(
        f"you are not logged in to {name}",
        why=f"the server says: {error.summary}",
        remedy=f"log in again, or use another context; `{prompt.program} check` tests the access",
    )


def _forbidden(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:
    """A quota and an admission webhook answer with 403 too: their own messages are kept."""
    match, namespace = _NOT_ALLOWED.search(error.summary), _IN_NAMESPACE.search(error.summary)
    if match is None:
        return TarragonError(f"{name} rejected the request", why=error.summary)
    where = f" in namespace {namespace['namespace']}" if namespace else " in all namespaces"
    return TarragonError(
        f"{match['user']} may not {match['verb']} {match['resource']}{where} on {name}",
        why="no role in the cluster allows it",
        remedy=f"ask its administrator, or use another namespace (-n); `{prompt.program} check` shows what you may do",
    )


def _not_installed(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:  # noqa: ARG001 - as the others
    return TarragonError(error.summary, why=f"{name} does not serve this kind", remedy=error.remedy)


def _not_found(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:
    if not isinstance(error, NotFound):
        return error
    if is_kind_missing(error):
        return _not_installed(NotInstalled(), name, prompt)
    details: Json = error.status.get("details") or {}
    if details.get("kind") == "namespaces":
        missing = details.get("name")
        return TarragonError(
            f"namespace {missing} not found on {name}",
            remedy=f"use another one with -n, or create it: kubectl create namespace {missing}",
        )
    return TarragonError(error.summary, why=f"says {name}")


def _too_many(error: TarragonError, name: str, prompt: CommandPrefix) -> TarragonError:  # noqa: ARG001 - as the others
    return TarragonError(f"{name} is too busy", why=error.summary, remedy="try again later")


_WORDS: Sequence[tuple[type[TarragonError], Translation]] = (
    (NotInstalled, _not_installed),
    (CredentialsError, lambda error, *_: error),  # it already has a remedy
    (Unauthorized, _unauthorized),
    (Forbidden, _forbidden),
    (NotFound, _not_found),
    (TooManyRequests, _too_many),
    (ApiError, lambda error, name, _: TarragonError(error.summary, why=f"says {name}")),
)
