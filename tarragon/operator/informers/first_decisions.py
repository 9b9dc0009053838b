"""Tells which new jobs wait for the scheduler's first decision, with which their first status is written.

A job that is admitted at once then costs one write of its status and not two. The state is in memory: a scheduler that
starts looks at every job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tarragon.operator.informers.candidates import JobId


class FirstDecisions:
    """The jobs that the scheduler has looked at, and those whose status waits for that."""

    def __init__(self) -> None:
        self._considered: dict[JobId, str] = {}
        self._awaiting: set[JobId] = set()
        self._handlers: list[Callable[[JobId], None]] = []

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job for which `is_awaited` returned True, once the scheduler has looked at it."""
        self._handlers.append(handler)

    def is_awaited(self, job: JobId, uid: str) -> bool:
        """Whether the scheduler has yet to look at the job. If so, subscribers are called once it has."""
        if self._considered.get(job) == uid:
            return False
        self._awaiting.add(job)
        return True

    def considered(self, jobs: Iterable[tuple[JobId, str]]) -> None:
        """The scheduler has looked at these jobs, given with their uids, whatever it has decided or failed at."""
        for job, uid in jobs:
            self._considered[job] = uid
            if job in self._awaiting:
                self._awaiting.discard(job)
                for handler in self._handlers:
                    handler(job)

    def forget(self, job: JobId) -> None:
        """The job was deleted, or has a status."""
        self._considered.pop(job, None)
        self._awaiting.discard(job)
