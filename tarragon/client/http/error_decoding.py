"""Turns error responses into errors: from the server's Status, or from any other text, such as that of a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tarragon.client.errors import ApiError, error_from_status
from tarragon.kube.codec import decode

if TYPE_CHECKING:
    import aiohttp

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


async def error_from_response(response: aiohttp.ClientResponse) -> ApiError:
    """The error of a response. Reads the response to its end and closes it."""
    async with response:
        body = await response.read()
    return error_from_body(response.status, response.reason or "", body, response.headers.get("Retry-After", ""))


def error_from_body(code: int, reason: str, body: bytes, wait: str) -> ApiError:
    """The error of a response with that code, HTTP's reason, body, and header Retry-After. Pure."""
    status = (
        _status(body)
        or {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": _REASONS.get(code, "InternalError" if code >= 500 else ""),  # noqa: PLR2004
            "message": body.decode(errors="replace").strip()[:500] or f"HTTP {code} {reason}",
        }
    )
    status.setdefault("code", code)
    details = status.get("details") or {}
    if wait.isdigit() and "retryAfterSeconds" not in details:
        status["details"] = {**details, "retryAfterSeconds": int(wait)}
    return error_from_status(status)


def _status(body: bytes) -> dict[str, Any] | None:
    try:
        value: object = decode(body, object)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None
