"""What a Kubernetes API answers when it does not do what was asked.

ApiError                 reason, message and details of the metav1.Status
  NotFound               404: it is not there
  AlreadyExists          409: create met an object of that name
  Conflict               409: the resourceVersion or uid given is not the stored one; read again and retry
  Invalid                422: the object breaks the schema; `causes` names each field
  BadRequest             400
  Unauthorized           401: the credentials are wrong or stale
    NoCredentials        there are none to show: worded for a person, with a remedy
  Forbidden              403: no permission, a quota or an admission refusal
  Expired                410: the resourceVersion is older than the history; list anew
  TooManyRequests        429: wait `retry_after` seconds
  Unavailable            no answer at all, or 5xx: try again later
    Unreachable          nobody is there
"""

from __future__ import annotations

from typing import Any

from tarragon.base.errors import TarragonError


class ApiError(TarragonError):
    """`status` is the metav1.Status object as a dict; `code` the HTTP status."""

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
        """Seconds the server asks to wait; 0 when it does not say."""
        details = self.status.get("details") or {}
        return float(details.get("retryAfterSeconds") or 0)


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on create."""


class Conflict(ApiError):
    """409: somebody else has changed it meanwhile."""


class Invalid(ApiError):
    """422."""


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401."""


class NoCredentials(Unauthorized):
    """401 before any server was asked: a program or a file that says who we are fails. Worded for a person."""

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(
            {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": what}
        )
        self.why = why
        self.remedy = remedy


class Forbidden(ApiError):
    """403."""


class Expired(ApiError):
    """410."""


class TooManyRequests(ApiError):
    """429."""


class Unavailable(ApiError):
    """No answer, or 5xx."""


class Unreachable(Unavailable):
    """Nobody is there: no connection could be made, or nothing came in time. To ask again at once is of no use."""


_BY_REASON: dict[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Expired, "Gone": Expired}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(status: dict[str, Any]) -> ApiError:
    """The error for a metav1.Status: by reason first, as one HTTP code stands for several."""
    code = int(status.get("code") or 500)
    kind = _BY_REASON.get(str(status.get("reason") or "")) or _BY_CODE.get(code)
    if kind is None:
        kind = Unavailable if code >= 500 else ApiError  # noqa: PLR2004 - the HTTP class boundary
    return kind(status)


def unavailable(message: str) -> Unavailable:
    """No HTTP answer came at all."""
    return Unavailable(_nothing_came(message))


def unreachable(message: str) -> Unreachable:
    return Unreachable(_nothing_came(message))


def _nothing_came(message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": message}
