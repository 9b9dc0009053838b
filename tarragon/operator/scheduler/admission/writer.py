"""Writes `status.tarragon.admission`, and what follows from it for the rest of the status, in one request.

It is conditional on the resource version that the decision was based on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.port import Client
from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.job.status import Admission
from tarragon.job.status_encoding import encode_admission, raw_admission
from tarragon.kube.event import Event
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import CustomObject
from tarragon.operator.informers.cache_transforms import CachedJob
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.admission.maintenance import AdmissionUpdate
from tarragon.plan.reconcile.admitted_status import StatusWrite, admitted_status
from tarragon.plan.reconcile.generation import needs_no_mark
from tarragon.scheduling.api.decision import BEHIND_OTHERS, INSUFFICIENT_RESOURCES, Defer

log = structlog.get_logger(__name__)

MESSAGE_UPDATE_SECONDS = 10.0
"""Minimum seconds between two updates of a wait's message while its code stays the same."""
INTERCHANGEABLE_CODES = frozenset({INSUFFICIENT_RESOURCES, BEHIND_OTHERS})
"""Codes between which hundreds of waits may alternate as capacity changes: such a change is a message update."""
MAX_MESSAGE_UPDATES = 25
"""Message updates per interval: this many for the head of the queue, and this many for the least recently updated."""
MAX_NEW_WAITS_PER_CYCLE = 500
"""Waits with a new code written per cycle, so that starts are not delayed by thousands of status writes."""
MAX_CONCURRENT_WRITES = 16
"""As many as the reconciler has."""
MAX_EVENT_LAG_SECONDS = 30.0
"""Events that lag behind our own write by more than this are trusted nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAdmission:
    """A job as it was written, and the events that announce its new status, which are yet to be recorded."""

    object: CustomObject | None
    """None if the cache shows a later state already."""
    events: Sequence[Event] = ()


class AdmissionWriter:
    """Rate-limits writes, and remembers when each was made so that stale watch events do not undo it."""

    def __init__(self, cluster: Client, clock: Clock, informers: Informers, candidates: Candidates) -> None:
        self._cluster = cluster
        self._clock = clock
        self._informers = informers
        self._candidates = candidates
        self._last_write: dict[JobId, tuple[str, float]] = {}
        """The job's uid, and when its admission was last written."""
        self._next_message_update = -math.inf
        # What follows from an admission is derived when it can be sent: a cycle may write hundreds, and the event loop
        # has other things to do, such as the renewal of the lease.
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)
        self.retry_after: float | None = None
        """Seconds until the postponed writes should be decided again; None if none was postponed."""

    def due_updates(self, decided: Sequence[AdmissionUpdate]) -> Sequence[AdmissionUpdate]:
        """The changes of assignments that may be written now, which is nearly all. Must be called first in a cycle."""
        now = self._clock.monotonic()
        due_now = [write for write in decided if not self._was_dropped(write[0], now)]
        self.retry_after = MESSAGE_UPDATE_SECONDS if len(due_now) < len(decided) else None
        return due_now

    def due_waits(self, decided: Iterable[Defer]) -> Sequence[Defer]:
        """The waits to write now, in queue order; postponed ones are decided again in the next cycle.

        Waits with a new code come first, up to a limit; then message updates for the head of the queue and for the
        least recently updated jobs.
        """
        now = self._clock.monotonic()
        on_record = self._candidates.recorded_waits
        new_codes: list[Defer] = []
        message_updates: list[Defer] = []
        for wait in decided:
            before = on_record.get(wait.gang)
            if before is None:
                if self._was_dropped(self._candidates.by_name(wait.gang), now):
                    self.retry_after = MESSAGE_UPDATE_SECONDS
                else:
                    new_codes.append(wait)
            elif before.code != wait.code and not {before.code, wait.code} <= INTERCHANGEABLE_CODES:
                new_codes.append(wait)
            elif before.message != wait.message or before.code != wait.code or before.cause != wait.cause:
                message_updates.append(wait)
        due_updates = self._due_message_updates(message_updates, now)
        if len(new_codes) > MAX_NEW_WAITS_PER_CYCLE:
            self.retry_after = 0.0
        elif len(due_updates) < len(message_updates):
            self.retry_after = MESSAGE_UPDATE_SECONDS
        return [*new_codes[:MAX_NEW_WAITS_PER_CYCLE], *due_updates]

    def due_ended_waits(self, decided: Sequence[AdmissionUpdate]) -> Sequence[AdmissionUpdate]:
        """Ended waits of running jobs, limited per cycle: raising a quota ends thousands. Must be called last."""
        if len(decided) > MAX_NEW_WAITS_PER_CYCLE:
            self.retry_after = 0.0
        return decided[:MAX_NEW_WAITS_PER_CYCLE]

    def _was_dropped(self, candidate: Candidate, now: float) -> bool:
        """Whether the server dropped an admission it had accepted. Retries are throttled: there may be thousands."""
        return candidate.admission is None and now - self._written_at(candidate) < MESSAGE_UPDATE_SECONDS

    def _written_at(self, candidate: Candidate) -> float:
        """When the job was last written; -inf if never. Writes to an earlier job of the same name do not count."""
        uid, at = self._last_write.get(candidate.id, ("", -math.inf))
        return at if uid == candidate.object.metadata.uid else -math.inf

    def _due_message_updates(self, message_updates: Sequence[Defer], now: float) -> Sequence[Defer]:
        if not message_updates or now < self._next_message_update:
            return []
        written_at = {wait.gang: self._written_at(self._candidates.by_name(wait.gang)) for wait in message_updates}
        ready = [wait for wait in message_updates if now - written_at[wait.gang] >= MESSAGE_UPDATE_SECONDS]
        if not ready:
            return []
        self._next_message_update = now + MESSAGE_UPDATE_SECONDS
        oldest = sorted(ready[MAX_MESSAGE_UPDATES:], key=lambda wait: (written_at[wait.gang], wait.gang))
        return [*ready[:MAX_MESSAGE_UPDATES], *oldest[:MAX_MESSAGE_UPDATES]]

    async def write(self, candidate: Candidate, admission: Admission) -> WrittenAdmission | None:
        """Write the admission. Returns None if the write conflicts, or if the job is no longer Tarragon's."""
        async with self._slots:
            return await self._write(candidate, admission)

    async def _write(self, candidate: Candidate, admission: Admission) -> WrittenAdmission | None:
        metadata = candidate.object.metadata
        decided = self._status_write(candidate, admission)
        if decided is None:
            return None
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": decided.patch}
        self._informers.accepted_admissions.record_decision(candidate.id, metadata.uid, admission)
        try:
            kind = candidate.framework.resource.with_model(CachedJob)
            written = await self._cluster.patch(kind, metadata.key, patch, subresource="status")
        except (Conflict, NotFound):
            return None  # The cache will deliver the change, which starts the next cycle.
        is_kept = bool(raw_admission(written.status))
        events = decided.events if is_kept else ()  # A foreign CRD drops it, and the reconciler says so.
        # Until the cache shows our write, the written object must count, or the next cycle would assign the same node
        # twice. A newer cache wins: no later event would remove a job whose deletion the cache has already delivered.
        shown = self._informers.jobs[candidate.framework.kind].objects.get(metadata.key)
        if shown is None or shown.metadata.uid != metadata.uid or is_older_version(written, shown):
            return WrittenAdmission(object=None, events=events)
        self._last_write[candidate.id] = metadata.uid, self._clock.monotonic()
        return WrittenAdmission(object=written, events=events)

    def _status_write(self, candidate: Candidate, admission: Admission) -> StatusWrite | None:
        encoded = encode_admission(admission)
        before = raw_admission(candidate.object.status)
        only_admission = StatusWrite(patch={"tarragon": {"admission": create_merge_patch(before, encoded)}})
        metadata = candidate.object.metadata
        try:
            observed = self._informers.observe(candidate.framework.kind, metadata.key)
            if observed is None or observed.object.metadata.resource_version != metadata.resource_version:
                return only_admission  # The job has changed since, so that the write will most likely conflict.
            is_new = recorded_generation(observed.object) is None
            if is_new and not needs_no_mark(candidate.framework, observed):
                return None
            return admitted_status(candidate.framework, observed, encoded, self._clock.now())
        except Exception:
            # A bug that this job brings to light: its admission alone is written, and the reconciler has the bug, too.
            log.exception("unexpected error in deriving the status of a job", job=str(candidate.id))
            return only_admission

    def is_stale_event(self, new: CustomObject, known: Candidate) -> bool:
        """Whether a watch event predates our own write; following it would release the job's assignments.

        True only for a limited time: a server restored from a backup counts its versions from an older one.
        """
        lag = self._clock.monotonic() - self._written_at(known)
        return lag < MAX_EVENT_LAG_SECONDS and is_older_version(new, known.object)

    def forget(self, job: JobId) -> None:
        """The job is no longer a candidate."""
        self._last_write.pop(job, None)


def is_older_version(left: CustomObject, right: CustomObject) -> bool:
    """Whether `left` is an older version of `right`; False for different objects of the same name."""
    if left.metadata.uid != right.metadata.uid:
        return False
    older, newer = left.metadata.resource_version, right.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)
