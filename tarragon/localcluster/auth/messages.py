"""The words in which a request is refused: those of a kube-apiserver, as scripts and people look for them."""

from __future__ import annotations

import json

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.identity import User
from tarragon.localcluster.auth.attributes import Attributes


def unauthorized() -> ApiError:
    return errors.failure(401, "Unauthorized", "Unauthorized")


def forbidden(user: User, wanted: Attributes, reason: str = "") -> ApiError:
    """403. `reason` is what authorization has to say beside the plain no."""
    cannot = f"User {_quoted(user.name)} cannot {wanted.verb}"
    if wanted.path:
        words = f"{cannot} path {_quoted(wanted.path)}"
        return errors.failure(403, "Forbidden", f"forbidden: {_with(words, reason)}", {})
    where = f"in the namespace {_quoted(wanted.namespace)}" if wanted.namespace else "at the cluster scope"
    words = f"{cannot} resource {_quoted(wanted.full_resource)} in API group {_quoted(wanted.group)} {where}"
    return about(wanted, _with(words, reason))


def about(wanted: Attributes, why: str) -> ApiError:
    """403 of the object that a request is about."""
    kind = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    subject = f"{kind} {_quoted(wanted.name)}" if wanted.name else kind
    details = {
        **({"name": wanted.name} if wanted.name else {}),
        **({"group": wanted.group} if wanted.group else {}),
        "kind": wanted.resource,
    }
    return errors.failure(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def _with(words: str, reason: str) -> str:
    return f"{words}: {reason}" if reason else words


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
