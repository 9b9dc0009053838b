"""What the API server did not let us make, job by job. Kept in memory: whoever starts anew tries once more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from http import HTTPStatus

from tarragon.client.errors import AlreadyExists, ApiError, Conflict, Expired, TooManyRequests, Unauthorized
from tarragon.kube.meta import Key
from tarragon.plan.view.actions import Refusal

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds until what was refused is tried again. Meanwhile a job may change as often as it likes."""
FIRST_LONG_PAUSE = 60.0
LONGEST_LONG_PAUSE = 3600.0
"""The same for what a job does without: it may be refused as long as the job is there, and nobody waits for it."""


class Refusals:
    def __init__(self) -> None:
        self._said: dict[tuple[str, Key], tuple[int, Refusal]] = {}
        self._done_without: dict[tuple[str, Key], dict[str, tuple[int, dt.datetime]]] = {}

    def of(self, kind: str, job: Key) -> Refusal | None:
        said = self._said.get((kind, job))
        return None if said is None else said[1]

    def note(self, kind: str, job: Key, words: tuple[str, str], now: dt.datetime) -> None:
        """`words` are the reason and the message. Each refusal in a row doubles the pause."""
        count, _ = self._said.get((kind, job), (0, None))
        reason, message = words
        again = now + _pause(count, FIRST_PAUSE, LONGEST_PAUSE)
        self._said[kind, job] = count + 1, Refusal(reason=reason, message=message, again=again)

    def forget(self, kind: str, job: Key) -> None:
        """What it needs was made."""
        self._said.pop((kind, job), None)

    def to_ask_again(self, kind: str, job: Key) -> Mapping[str, dt.datetime]:
        """When what the job does without may be asked for again, by its name."""
        return {name: again for name, (_, again) in self._done_without.get((kind, job), {}).items()}

    def note_done_without(self, kind: str, job: Key, name: str, now: dt.datetime) -> dt.datetime:
        """When to ask again."""
        of_job = self._done_without.setdefault((kind, job), {})
        count, _ = of_job.get(name, (0, now))
        again = now + _pause(count, FIRST_LONG_PAUSE, LONGEST_LONG_PAUSE)
        of_job[name] = count + 1, again
        return again

    def gone(self, kind: str, job: Key) -> None:
        """The job is."""
        self.forget(kind, job)
        self._done_without.pop((kind, job), None)


def is_refusal(error: ApiError) -> bool:
    """Whether somebody has looked at the object and said no, so that asking again at once is of no use.

    Webhooks choose their code, and one that does not answer is a 500; quotas, limits, roles and namespaces that are
    ending say 403. Who is not known, who lags behind and who asks too often was not looked at.
    """
    if isinstance(error, Unauthorized | AlreadyExists | Conflict | Expired | TooManyRequests):
        return False
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or (
        error.code == HTTPStatus.INTERNAL_SERVER_ERROR and "webhook" in str(error)
    )


def _pause(count: int, first: float, longest: float) -> dt.timedelta:
    return dt.timedelta(seconds=min(first * 2.0 ** min(count, 20), longest))
