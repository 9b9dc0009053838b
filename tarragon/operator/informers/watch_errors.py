"""Troubles of watches as log lines: each when it begins and when it is over, and what lasts only now and then."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tarragon.base.clock import Clock
from tarragon.client.backoff import FIRST_PAUSE
from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.informer.cache_reader import Recovery, Trouble

AGAIN_SECONDS = 600.0
"""A permission that is not given on purpose is refused twice a minute, for ever."""

_NOT_INSTALLED = "not installed here; its jobs are kept as soon as it is"
# A server that does not let a kind be read does not say whether there is such a kind.
_UNREADABLE = "may not be read: if it is installed here, its jobs are kept once the role of deploy/ is applied"

log = structlog.get_logger(__name__)


class Troubles:
    def __init__(self, clock: Clock, is_to_be_expected: Callable[[Trouble], bool] = lambda _: False) -> None:
        """What is to be expected is told once, as no warning."""
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}
        self._is_to_be_expected = is_to_be_expected
        self._expected: set[tuple[str, str]] = set()
        self._lasting: set[str] = set()

    def tell(self, trouble: Trouble) -> None:
        if not self._is_to_be_expected(trouble):
            self._tell(trouble)
            return
        words = _UNREADABLE if isinstance(trouble.error, Forbidden) else _NOT_INSTALLED
        if (trouble.resource, words) not in self._expected:
            self._expected.add((trouble.resource, words))
            log.info(words, kind=trouble.resource)

    def tell_end(self, recovery: Recovery) -> None:
        """Only of what was told: a trouble that comes and goes in the same words is heard of once."""
        if recovery.resource in self._lasting:
            self._lasting.discard(recovery.resource)
            log.info("watch", over=str(recovery))

    def _tell(self, trouble: Trouble) -> None:
        now = self._clock.monotonic()
        self._told = {what: at for what, at in self._told.items() if now - at < AGAIN_SECONDS}
        what = trouble.resource, str(trouble.error)
        # A short pause is the first one after a time of quiet.
        if what in self._told and trouble.pause > FIRST_PAUSE:
            log.debug("watch", trouble=str(trouble))
            return
        self._told[what] = now
        if trouble.key is None:
            self._lasting.add(trouble.resource)
        log.warning("watch", trouble=str(trouble), remedy=_remedy(trouble.error))


def _remedy(error: Exception) -> str:
    """What whoever installs us may have left out."""
    match error:
        case NotFound():
            return "is its CustomResourceDefinition installed? It stands in deploy/"
        case Forbidden():
            return "has our service account its roles? They stand in deploy/"
        case _:
            return "none is needed if it passes"
