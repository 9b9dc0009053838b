"""The scheduler's writes: nothing but `status.tarragon.admission`, conditional on the version it was decided on."""

from __future__ import annotations

from tarragon.base.clock import Clock
from tarragon.cluster.errors import Conflict, NotFound
from tarragon.cluster.port import Cluster
from tarragon.job.encoding import admission_fields
from tarragon.job.status import Admission
from tarragon.kube.meta import CustomObject, JsonObject
from tarragon.kube.patch import difference
from tarragon.operator.candidates import Candidate, JobId
from tarragon.operator.gather import World
from tarragon.operator.kept import KeptJob

RETELL_SECONDS = 10.0
"""A wait whose code stays is not told anew more often than this, however its amounts change."""
LONGEST_LAG_SECONDS = 30.0
"""A watch that is further behind our own write than this is believed nevertheless."""


class Telling:
    """It remembers when it told what, so that a watch that lags does not undo it."""

    def __init__(self, cluster: Cluster, clock: Clock, world: World) -> None:
        self._cluster = cluster
        self._clock = clock
        self._world = world
        self._told: dict[JobId, float] = {}

    def may_tell(self, candidate: Candidate, admission: Admission) -> bool:
        before = candidate.admission
        if before is None and candidate.id in self._told:
            # The server took one and did not keep it: not at once again, there may be thousands.
            return self._clock.monotonic() - self._told[candidate.id] >= RETELL_SECONDS
        only_words = (
            before is not None
            and before.wait is not None
            and admission.wait is not None
            and before.wait.code == admission.wait.code
        )
        return not only_words or self._clock.monotonic() - self._told.get(candidate.id, 0.0) >= RETELL_SECONDS

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
