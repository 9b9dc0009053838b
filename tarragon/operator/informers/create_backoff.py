"""Backoff for objects that the API server refuses to create, per job. In memory only: a restart tries again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from http import HTTPStatus

from tarragon.client.errors import AlreadyExists, ApiError, Conflict, ResourceExpired, TooManyRequests, Unauthorized
from tarragon.kube.meta import Key
from tarragon.plan.view.actions import REFUSED_FOR_GATES, RejectedCreate

INITIAL_BACKOFF = 1.0
MAX_BACKOFF = 30.0
"""Bounds, in seconds, of the pause before a refused create is retried, whatever changes about the job meanwhile."""
INITIAL_OPTIONAL_BACKOFF = 60.0
MAX_OPTIONAL_BACKOFF = 3600.0
"""The same for optional objects: they may be refused for the life of the job, and nothing waits for them."""


class CreateBackoff:
    """The last refusal and the retry time of each job's required and optional objects."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, Key], tuple[int, RejectedCreate]] = {}
        self._optional: dict[tuple[str, Key], dict[str, tuple[int, dt.datetime]]] = {}
        self._gated: set[tuple[str, Key]] = set()

    def last_refusal(self, kind: str, job: Key) -> RejectedCreate | None:
        refused = self._refused.get((kind, job))
        return None if refused is None else refused[1]

    def was_gated(self, kind: str, job: Key) -> bool:
        """Whether a pod of the job was ever refused because it named a node and a webhook added scheduling gates."""
        return (kind, job) in self._gated

    def record_refusal(self, kind: str, job: Key, words: tuple[str, str], now: dt.datetime) -> None:
        """Record a refusal; `words` are its reason and message. Each consecutive refusal doubles the pause."""
        count, _ = self._refused.get((kind, job), (0, None))
        reason, message = words
        if reason == REFUSED_FOR_GATES:
            self._gated.add((kind, job))
        again = now + _pause(count, INITIAL_BACKOFF, MAX_BACKOFF)
        self._refused[kind, job] = count + 1, RejectedCreate(reason=reason, message=message, retry_at=again)

    def reset(self, kind: str, job: Key) -> None:
        """The job's required objects were created: reset the backoff."""
        self._refused.pop((kind, job), None)

    def optional_retry_times(self, kind: str, job: Key) -> Mapping[str, dt.datetime]:
        """When each refused optional object may be created again, by its name."""
        return {name: again for name, (_, again) in self._optional.get((kind, job), {}).items()}

    def record_optional_refusal(self, kind: str, job: Key, name: str, now: dt.datetime) -> dt.datetime:
        """Record the refusal of an optional object. Returns when to retry."""
        retries = self._optional.setdefault((kind, job), {})
        count, _ = retries.get(name, (0, now))
        again = now + _pause(count, INITIAL_OPTIONAL_BACKOFF, MAX_OPTIONAL_BACKOFF)
        retries[name] = count + 1, again
        return again

    def forget_job(self, kind: str, job: Key) -> None:
        """The job was deleted."""
        self.reset(kind, job)
        self._optional.pop((kind, job), None)
        self._gated.discard((kind, job))


def is_rejected_by_server(error: ApiError) -> bool:
    """Whether the server rejected the object itself, so that an immediate retry is useless.

    Webhooks choose their own code, and a webhook that does not answer is a 500; quotas, limits, missing permissions and
    terminating namespaces are 403. Authentication failures, conflicts and throttling do not concern the object.
    """
    if isinstance(error, Unauthorized | AlreadyExists | Conflict | ResourceExpired | TooManyRequests):
        return False
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or (
        error.code == HTTPStatus.INTERNAL_SERVER_ERROR and "webhook" in str(error)
    )


def _pause(count: int, first: float, longest: float) -> dt.timedelta:
    return dt.timedelta(seconds=min(first * 2.0 ** min(count, 20), longest))
