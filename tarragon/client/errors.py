"""The errors of a Kubernetes API.

ApiError                 reason, message and details of the metav1.Status
  NotFound               404: the object does not exist
  AlreadyExists          409: create found an object of that name
  Conflict               409: the resourceVersion or uid is not the stored one; read again and retry
  Invalid                422: the object violates the schema; `causes` names each field
  BadRequest             400
  Unauthorized           401: the credentials are wrong or have expired
    CredentialsError     no credentials could be obtained; the message is for users and has a remedy
  Forbidden              403: no permission, an exceeded quota, or denied by admission
  ResourceExpired        410: the resourceVersion is older than the history; list again
  TooManyRequests        429: wait `retry_after` seconds
  Unavailable            no response at all, or 5xx: retry later
    Unreachable          no connection, or no response in time
"""

from __future__ import annotations

from typing import Any

from tarragon.base.errors import TarragonError


class ApiError(TarragonError):
    """An error response. `status` is the metav1.Status as a dict, `code` the HTTP status code."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(str(status.get("message") or status.get("reason") or "the API server gave no reason"))
        self.status = status
        self.code = int(status.get("code") or 500)
        self.reason = str(status.get("reason") or "")

    @property
    def causes(self) -> list[dict[str, Any]]:
        details = self.status.get("details") or {}
        return list(details.get("causes") or [])

    @property
    def retry_after(self) -> float:
        """The seconds that the server asks to wait; 0 if it does not say."""
        details = self.status.get("details") or {}
        return float(details.get("retryAfterSeconds") or 0)


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on create."""


class Conflict(ApiError):
    """409: the object has been changed in the meantime."""


class Invalid(ApiError):
    """422."""


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401."""


class CredentialsError(Unauthorized):
    """401 without a request: an exec plugin or a credentials file failed. The message is for users."""

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(
            {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": what}
        )
        self.cause = why
        self.remedy = remedy


class Forbidden(ApiError):
    """403."""


class ResourceExpired(ApiError):
    """410."""


class TooManyRequests(ApiError):
    """429."""


class Unavailable(ApiError):
    """No response, or 5xx."""


class Unreachable(Unavailable):
    """No connection could be made, or no response came in time. An immediate retry is useless."""


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": ResourceExpired,
    "Gone": ResourceExpired,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceExpired,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(status: dict[str, Any]) -> ApiError:
    """The error for a metav1.Status, by its reason first, because one HTTP code stands for several errors."""
    code = int(status.get("code") or 500)
    kind = _BY_REASON.get(str(status.get("reason") or "")) or _BY_CODE.get(code)
    if kind is None:
        kind = Unavailable if code >= 500 else ApiError  # noqa: PLR2004 - the HTTP class boundary
    return kind(status)


def unavailable(message: str) -> Unavailable:
    """The error for a request without a complete HTTP response."""
    return Unavailable(_status_503(message))


def unreachable(message: str) -> Unreachable:
    return Unreachable(_status_503(message))


def _status_503(message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": message}
