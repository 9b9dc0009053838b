"""The scheduler's writes: nothing but `status.tarragon.admission`, conditional on the version it was decided on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.cluster.errors import Conflict, NotFound
from tarragon.cluster.port import Cluster
from tarragon.job.encoding import admission_fields
from tarragon.job.status import Admission
from tarragon.kube.meta import CustomObject, JsonObject
from tarragon.kube.patch import difference
from tarragon.operator.candidates import Candidate, JobId
from tarragon.operator.gather import World
from tarragon.operator.holders import Decided
from tarragon.operator.kept import KeptJob

RETELL_SECONDS = 10.0
"""A wait whose code stays is not told anew more often than this, however its amounts change."""
RETOLD_AT_ONCE = 25
"""So many of those that are first in the queue are told anew then, and so many of those that were told longest ago."""
CODES_AT_ONCE = 500
"""Waits of which another code is told in one round: starts do not wait for thousands of writes about waiting."""
LONGEST_LAG_SECONDS = 30.0
"""A watch that is further behind our own write than this is believed nevertheless."""


class Telling:
    """It remembers when it told what, so that a watch that lags does not undo it."""

    def __init__(self, cluster: Cluster, clock: Clock, world: World) -> None:
        self._cluster = cluster
        self._clock = clock
        self._world = world
        self._told: dict[JobId, float] = {}
        self._words_again = -math.inf
        self.pause = RETELL_SECONDS
        """Seconds until what was not due should be decided about again."""

    def due(self, writes: Sequence[Decided]) -> Sequence[Decided]:
        """What is to be written now, in the order of the decisions; what is not, is decided anew in the next round.

        Whatever somebody holds, or does not hold any more, is written at once. Waits are, a number of them at a time,
        when their code is another one; of mere words, those of the first and those that were told longest ago.
        """
        now = self._clock.monotonic()
        urgent: list[Decided] = []
        codes: list[Decided] = []
        words: list[Decided] = []
        for candidate, admission in writes:
            if self._was_not_kept(candidate, now):
                continue
            several = urgent if not is_wait(candidate, admission) else words if is_told(candidate, admission) else codes
            several.append((candidate, admission))
        self.pause = 0.0 if len(codes) > CODES_AT_ONCE else RETELL_SECONDS
        return [*urgent, *codes[:CODES_AT_ONCE], *self._retold(words, now)]

    def _was_not_kept(self, candidate: Candidate, now: float) -> bool:
        """The server took one and did not keep it: not at once again, there may be thousands."""
        told = self._told.get(candidate.id)
        return candidate.admission is None and told is not None and now - told < RETELL_SECONDS

    def _retold(self, words: Sequence[Decided], now: float) -> Sequence[Decided]:
        ripe = [write for write in words if now - self._told.get(write[0].id, -RETELL_SECONDS) >= RETELL_SECONDS]
        if not ripe or now < self._words_again:
            return []
        self._words_again = now + RETELL_SECONDS
        oldest = sorted(ripe[RETOLD_AT_ONCE:], key=lambda write: (self._told.get(write[0].id, 0.0), write[0].id))
        return [*ripe[:RETOLD_AT_ONCE], *oldest[:RETOLD_AT_ONCE]]

    async def write(self, candidate: Candidate, admission: Admission) -> CustomObject | None:
        """What the job is now, where the cache does not show it yet; None where the cache knows better."""
        metadata = candidate.object.metadata
        before = recorded_admission(candidate.object)
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version},
            "status": {"tarragon": {"admission": difference(before, admission_fields(admission))}},
        }
        try:
            kind = candidate.framework.resource.reading(KeptJob)
            written = await self._cluster.patch(kind, metadata.key, patch, subresource="status")
        except (Conflict, NotFound):
            return None  # The cache will show what has changed, and that starts the next round.
        # Until the cache shows it too, our own write must count, or the next round would sell the same node again.
        # A cache that is ahead is right: after the news that a job is gone, nothing would ever take it away again.
        shown = self._world.jobs[candidate.framework.kind].objects.get(metadata.key)
        if shown is None or shown.metadata.uid != metadata.uid or is_before(written, shown):
            return None
        self._told[candidate.id] = self._clock.monotonic()
        return written

    def is_news_of_the_past(self, new: CustomObject, known: Candidate) -> bool:
        """A watch that lags shows what was there before our own write: that would give away its places again.

        For a while only: a server whose storage was put back to an older state counts its versions from there.
        """
        lag = self._clock.monotonic() - self._told.get(known.id, -LONGEST_LAG_SECONDS)
        return lag < LONGEST_LAG_SECONDS and is_before(new, known.object)

    def forget(self, job: JobId) -> None:
        """It takes no part any more."""
        self._told.pop(job, None)


def is_before(left: CustomObject, right: CustomObject) -> bool:
    """Whether it is an older version of the same object; not of another one that took over its name."""
    if left.metadata.uid != right.metadata.uid:
        return False
    older, newer = left.metadata.resource_version, right.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)


def recorded_admission(found: CustomObject) -> JsonObject:
    """The raw field as it stands, for the difference to be exact."""
    status = found.status if isinstance(found.status, dict) else {}
    tarragon = status.get("tarragon")
    recorded = tarragon.get("admission") if isinstance(tarragon, dict) else None
    return recorded if isinstance(recorded, dict) else {}


def is_wait(candidate: Candidate, admission: Admission) -> bool:
    """Whether it says why the gang waits, and changes nothing of what it holds."""
    before = candidate.admission
    return admission.wait is not None and (
        admission.admitted is None if before is None else replace(before, wait=admission.wait) == admission
    )


def is_told(candidate: Candidate, admission: Admission) -> bool:
    """Whether the code of the wait is on record already."""
    before = None if candidate.admission is None else candidate.admission.wait
    return before is not None and admission.wait is not None and before.code == admission.wait.code
