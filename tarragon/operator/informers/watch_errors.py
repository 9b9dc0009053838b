"""Logs errors of lists and watches when they begin and end; lasting errors are repeated at intervals.

Watches that were lost without an error are logged at most once per interval.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tarragon.base.clock import Clock
from tarragon.client.backoff import INITIAL_DELAY
from tarragon.client.errors import Forbidden, NotFound, Unauthorized
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery, LostWatch

REPEAT_SECONDS = 600.0
"""Seconds between repetitions: a permission that was withheld on purpose is refused twice a minute, for ever."""

_NOT_INSTALLED = "not installed; its jobs are managed as soon as it is"
# A server that forbids reading a kind does not say whether the kind exists.
_UNREADABLE = "reading is forbidden: jobs of this kind, or that need it, wait until the operator's role allows it"
_REMEDY_FOR_LOST_WATCHES = (
    "none needed if it is rare: the API server is slow, or forgets watches, as kube-apiserver 1.20 was seen to do with"
    " hundreds of Services (--watch-cache-sizes=services#0 prevents that)"
)

log = structlog.get_logger(__name__)


class WatchErrorLog:
    """Decides which errors of the caches are logged, and how."""

    def __init__(self, clock: Clock, is_to_be_expected: Callable[[CacheError], bool] = lambda _: False) -> None:
        """Expected errors are logged once, at level info."""
        self._clock = clock
        self._logged_at: dict[tuple[str, str], float] = {}
        self._is_to_be_expected = is_to_be_expected
        self._expected: set[tuple[str, str]] = set()
        self._failing: set[str] = set()
        self._lost_at: dict[tuple[str, str], float] = {}

    def log_error(self, trouble: CacheError) -> None:
        if not self._is_to_be_expected(trouble):
            self._log_unexpected(trouble)
            return
        message = _UNREADABLE if isinstance(trouble.error, Forbidden) else _NOT_INSTALLED
        if (trouble.resource, message) not in self._expected:
            self._expected.add((trouble.resource, message))
            log.info(message, kind=trouble.resource)

    def log_recovery(self, recovery: CacheRecovery) -> None:
        """Log a recovery if its error was logged; an error that comes and goes with the same text is logged once."""
        if recovery.resource in self._failing:
            self._failing.discard(recovery.resource)
            log.info("watch recovered", over=str(recovery))

    def log_lost_watch(self, lost: LostWatch) -> None:
        """Log a warning; of the same kind and reason, only one per interval."""
        now, problem = self._clock.monotonic(), (lost.resource, lost.reason)
        logged_at = self._lost_at.get(problem)
        if logged_at is not None and now - logged_at < REPEAT_SECONDS:
            log.debug("watch lost", trouble=str(lost))
            return
        self._lost_at[problem] = now
        log.warning("watch lost", trouble=str(lost), remedy=_REMEDY_FOR_LOST_WATCHES)

    def _log_unexpected(self, trouble: CacheError) -> None:
        now = self._clock.monotonic()
        self._logged_at = {error: at for error, at in self._logged_at.items() if now - at < REPEAT_SECONDS}
        error = trouble.resource, str(trouble.error)
        # A short pause means that the error is the first one after a period without errors.
        if error in self._logged_at and trouble.retry_after > INITIAL_DELAY:
            log.debug("watch failed", trouble=str(trouble))
            return
        self._logged_at[error] = now
        if trouble.key is None:
            self._failing.add(trouble.resource)
        log.warning("watch failed", trouble=str(trouble), remedy=_remedy(trouble.error))


def _remedy(error: Exception) -> str:
    """A hint at what may be missing from the installation."""
    match error:
        case NotFound():
            return "is its CustomResourceDefinition installed? `tarragon docs install` says how"
        case Forbidden():
            return "does the operator's service account have its roles? `tarragon docs install` says how"
        case Unauthorized():
            return (
                "have the credentials expired? The operator rereads the files of its token and certificate every minute"
            )
        case _:
            return "none needed if the error is temporary"
