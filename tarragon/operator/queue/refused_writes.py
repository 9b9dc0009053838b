"""Backoff for objects that the API server refuses to create, per job. In memory only: a restart tries again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from http import HTTPStatus

from tarragon.client.errors import AlreadyExists, ApiError, Conflict, Expired, TooManyRequests, Unauthorized
from tarragon.kube.meta import Key
from tarragon.plan.view.actions import Refusal

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Bounds, in seconds, of the pause before a refused create is retried, whatever changes about the job meanwhile."""
FIRST_LONG_PAUSE = 60.0
LONGEST_LONG_PAUSE = 3600.0
"""The same for optional objects: they may be refused for the life of the job, and nothing waits for them."""


class Refusals:
    """The last refusal and the retry time of each job's required and optional objects."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, Key], tuple[int, Refusal]] = {}
        self._optional: dict[tuple[str, Key], dict[str, tuple[int, dt.datetime]]] = {}

    def of(self, kind: str, job: Key) -> Refusal | None:
        refused = self._refused.get((kind, job))
        return None if refused is None else refused[1]

    def note(self, kind: str, job: Key, words: tuple[str, str], now: dt.datetime) -> None:
        """Record a refusal; `words` are its reason and message. Each consecutive refusal doubles the pause."""
        count, _ = self._refused.get((kind, job), (0, None))
        reason, message = words
        again = now + _pause(count, FIRST_PAUSE, LONGEST_PAUSE)
        self._refused[kind, job] = count + 1, Refusal(reason=reason, message=message, again=again)

    def forget(self, kind: str, job: Key) -> None:
        """The job's required objects were created: reset the backoff."""
        self._refused.pop((kind, job), None)

    def to_ask_again(self, kind: str, job: Key) -> Mapping[str, dt.datetime]:
        """When each refused optional object may be created again, by its name."""
        return {name: again for name, (_, again) in self._optional.get((kind, job), {}).items()}

    def note_done_without(self, kind: str, job: Key, name: str, now: dt.datetime) -> dt.datetime:
        """Record the refusal of an optional object. Returns when to retry."""
        retries = self._optional.setdefault((kind, job), {})
        count, _ = retries.get(name, (0, now))
        again = now + _pause(count, FIRST_LONG_PAUSE, LONGEST_LONG_PAUSE)
        retries[name] = count + 1, again
        return again

    def gone(self, kind: str, job: Key) -> None:
        """The job was deleted."""
        self.forget(kind, job)
        self._optional.pop((kind, job), None)


def is_refusal(error: ApiError) -> bool:
    """Whether the server rejected the object itself, so that an immediate retry is useless.

    Webhooks choose their own code, and a webhook that does not answer is a 500; quotas, limits, missing permissions and
    terminating namespaces are 403. Authentication failures, conflicts and throttling do not concern the object.
    """
    if isinstance(error, Unauthorized | AlreadyExists | Conflict | Expired | TooManyRequests):
        return False
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or (
        error.code == HTTPStatus.INTERNAL_SERVER_ERROR and "webhook" in str(error)
    )


def _pause(count: int, first: float, longest: float) -> dt.timedelta:
    return dt.timedelta(seconds=min(first * 2.0 ** min(count, 20), longest))
