"""Whether the server lives, in the forms in which one asks: in a word, or part by part."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http import answers

PLACES = frozenset({"healthz", "livez", "readyz"})
PARTS = ("ping", "log", "etcd")
"""By the names of a real server. They are one process here: one that answers at all has them all."""


def answer(request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
    """Raises NotFound for a part that there is not."""
    place, *part = parts
    if part:
        if len(part) > 1 or part[0] not in PARTS:
            raise _no_such_part(parts)
        return answers.text("ok")
    left_out = set(request.query.getall("exclude", []))
    if "verbose" in request.query:
        lines = [f"[+]{name} {'excluded: ok' if name in left_out else 'ok'}\n" for name in PARTS]
        return answers.text("".join([*lines, f"{place} check passed\n"]))
    return answers.text("ok")


def _no_such_part(parts: Sequence[str]) -> ApiError:
    return errors.failure(404, "NotFound", f"the server has no check /{'/'.join(parts)}; it has {', '.join(PARTS)}")
