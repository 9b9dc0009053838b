"""Bugs that one job, or a mere word, brings to light must not stop the others: they are told once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tarragon.client.errors import ApiError
from tarragon.client.leader_election import LeaseLost
from tarragon.operator.informers.candidates import JobId

TO_CARRY_OUT, TO_TELL, TO_WRITE = "carry out what was decided", "tell why it waits", "write what was decided"
"""What is done last: whoever fails in these is decided about all the same. That the wait for it can be told does not
mean that what was decided can be carried out."""

log = structlog.get_logger(__name__)


class Faults:
    """By job, what could not be done for it."""

    def __init__(self) -> None:
        self._met: dict[JobId, dict[str, str]] = {}
        self._beside: set[str] = set()
        """What fails of no job in particular."""

    @contextmanager
    def of(self, job: JobId, doing: str) -> Iterator[None]:
        """Whatever goes wrong inside ends here. What goes wrong again is not told again, before it went well."""
        try:
            yield
        except (ApiError, LeaseLost):
            raise  # Nothing of these is the job's fault.
        except Exception as error:
            met = self._met.setdefault(job, {})
            if doing not in met:
                kind, key = job
                log.exception("admission met a bug", kind=kind, namespace=key.namespace, job=key.name, doing=doing)
            met[doing] = f"{type(error).__name__}: {error}"
        else:
            self._cure(job, doing)

    @contextmanager
    def beside(self, doing: str) -> Iterator[None]:
        """The same around what is for all jobs, and without which all is decided as well."""
        try:
            yield
        except (ApiError, LeaseLost):
            raise
        except Exception:
            if doing not in self._beside:
                log.exception("admission met a bug", doing=doing)
            self._beside.add(doing)
        else:
            self._beside.discard(doing)

    def word(self, job: JobId) -> str | None:
        """For people; None where all goes well."""
        met = self._met.get(job)
        return None if not met else "; ".join(f"{doing}: {error}" for doing, error in met.items())

    def jobs(self) -> frozenset[JobId]:
        """Those that something could not be done for."""
        return frozenset(self._met)

    def undecidable(self) -> frozenset[JobId]:
        """Those of which too little is known for a decision."""
        return frozenset(job for job, met in self._met.items() if met.keys() - {TO_CARRY_OUT, TO_TELL, TO_WRITE})

    def forget(self, job: JobId) -> None:
        """It is gone."""
        self._met.pop(job, None)

    def _cure(self, job: JobId, doing: str) -> None:
        met = self._met.get(job)
        if met is not None and met.pop(doing, None) is not None and not met:
            del self._met[job]
