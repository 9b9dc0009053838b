"""The scheduler's writes: nothing but `status.tarragon.admission`, conditional on the version it was decided on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.port import Cluster
from tarragon.job.encoding import admission_fields, raw_admission
from tarragon.job.status import Admission
from tarragon.kube.meta import CustomObject
from tarragon.kube.patch import difference
from tarragon.operator.informers.cache_transforms import KeptJob
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId
from tarragon.operator.informers.informers import World
from tarragon.operator.scheduler.admission.maintenance import Decided
from tarragon.scheduling.api.decision import BEHIND_OTHERS, INSUFFICIENT_RESOURCES, Wait

RETELL_SECONDS = 10.0
"""A wait whose code stays is not told anew more often than this, however its amounts change."""
ALIKE = frozenset({INSUFFICIENT_RESOURCES, BEHIND_OTHERS})
"""Between these a wait may change with each small amount that becomes free, in hundreds of jobs: mere words."""
RETOLD_AT_ONCE = 25
"""So many of those that are first in the queue are told anew then, and so many of those that were told longest ago."""
CODES_AT_ONCE = 500
"""Waits of which another code is told in one round: starts do not wait for thousands of writes about waiting."""
LONGEST_LAG_SECONDS = 30.0
"""A watch that is further behind our own write than this is believed nevertheless."""


class Telling:
    """It remembers when it told what, so that a watch that lags does not undo it."""

    def __init__(self, cluster: Cluster, clock: Clock, world: World, candidates: Candidates) -> None:
        self._cluster = cluster
        self._clock = clock
        self._world = world
        self._candidates = candidates
        self._told: dict[JobId, tuple[str, float]] = {}
        """The uid of whom, and when."""
        self._words_again = -math.inf
        self.pause: float | None = None
        """Seconds until what was not due should be decided about again; None where all was."""

    def due(self, decided: Sequence[Decided]) -> Sequence[Decided]:
        """Whatever somebody holds, or does not hold any more, is written at once. To be asked first in a round."""
        now = self._clock.monotonic()
        kept = [write for write in decided if not self._was_not_kept(write[0], now)]
        self.pause = RETELL_SECONDS if len(kept) < len(decided) else None
        return kept

    def due_waits(self, decided: Iterable[Wait]) -> Sequence[Wait]:
        """What is to be written of these now, in their order; what is not, is decided anew in the next round.

        A number of waits at a time is, when their code is another one; of mere words, those of the first and those
        that were told longest ago.
        """
        now = self._clock.monotonic()
        on_record = self._candidates.waits
        codes: list[Wait] = []
        words: list[Wait] = []
        for wait in decided:
            before = on_record.get(wait.gang)
            if before is None:
                if self._was_not_kept(self._candidates.named(wait.gang), now):
                    self.pause = RETELL_SECONDS
                else:
                    codes.append(wait)
            elif before.code != wait.code and not {before.code, wait.code} <= ALIKE:
                codes.append(wait)
            elif before.message != wait.message or before.code != wait.code:
                words.append(wait)
        retold = self._retold(words, now)
        if len(codes) > CODES_AT_ONCE:
            self.pause = 0.0
        elif len(retold) < len(words):
            self.pause = RETELL_SECONDS
        return [*codes[:CODES_AT_ONCE], *retold]

    def due_ends(self, decided: Sequence[Decided]) -> Sequence[Decided]:
        """Of waits of those that run: they end for thousands at once where a quota is raised. To be asked last."""
        if len(decided) > CODES_AT_ONCE:
            self.pause = 0.0
        return decided[:CODES_AT_ONCE]

    def _was_not_kept(self, candidate: Candidate, now: float) -> bool:
        """The server took one and did not keep it: not at once again, there may be thousands."""
        return candidate.admission is None and now - self._told_at(candidate) < RETELL_SECONDS

    def _told_at(self, candidate: Candidate) -> float:
        """Long ago where it was never told anything: what was told to an earlier job of its name is none of its."""
        uid, at = self._told.get(candidate.id, ("", -math.inf))
        return at if uid == candidate.object.metadata.uid else -math.inf

    def _retold(self, words: Sequence[Wait], now: float) -> Sequence[Wait]:
        if not words or now < self._words_again:
            return []
        told = {wait.gang: self._told_at(self._candidates.named(wait.gang)) for wait in words}
        ripe = [wait for wait in words if now - told[wait.gang] >= RETELL_SECONDS]
        if not ripe:
            return []
        self._words_again = now + RETELL_SECONDS
        oldest = sorted(ripe[RETOLD_AT_ONCE:], key=lambda wait: (told[wait.gang], wait.gang))
        return [*ripe[:RETOLD_AT_ONCE], *oldest[:RETOLD_AT_ONCE]]

    async def write(self, candidate: Candidate, admission: Admission) -> CustomObject | None:
        """What the job is now, where the cache does not show it yet; None where the cache knows better."""
        metadata = candidate.object.metadata
        before = raw_admission(candidate.object.status)
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version},
            "status": {"tarragon": {"admission": difference(before, admission_fields(admission))}},
        }
        self._world.verified.decided(candidate.id, metadata.uid, admission)
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
        self._told[candidate.id] = metadata.uid, self._clock.monotonic()
        return written

    def is_news_of_the_past(self, new: CustomObject, known: Candidate) -> bool:
        """A watch that lags shows what was there before our own write: that would give away its places again.

        For a while only: a server whose storage was put back to an older state counts its versions from there.
        """
        lag = self._clock.monotonic() - self._told_at(known)
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
