"""The interface through which the operator reports metrics, and an implementation that discards them."""

from __future__ import annotations

from typing import Protocol

from tarragon.client.workqueue import WorkQueue
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers


class Meter(Protocol):
    """Receives measurements. Methods must be fast and must not raise. `error` is a class name; empty on success."""

    def attach(self, informers: Informers, queue: WorkQueue[tuple[str, Key]]) -> None:
        """Called once, before any other method and before the caches run."""
        ...

    def leadership_changed(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """Called when this operator starts or stops leading."""
        ...

    def reconcile_finished(self, kind: str, seconds: float, error: str) -> None: ...

    def cycle_finished(self, seconds: float, error: str) -> None:
        """Called after each scheduling cycle and its writes."""
        ...

    def decision_written(self, decision: str, code: str) -> None:
        """Called when a scheduling decision has been written; `code` is the code of the job's wait, if it waits."""
        ...

    def admission_rejected(self) -> None:
        """Called when an admission in a job's status is rejected because the scheduler could not have decided it."""
        ...

    def decision_rejected(self, decision: str) -> None:
        """Called when a policy decision of this type was invalid; with `policy` if the policy itself failed."""
        ...

    def progress_reported(self, result: str) -> None:
        """Called when a report of progress has been answered; `result` is `accepted`, or why not."""
        ...

    def progress_written(self, result: str) -> None:
        """Called after each write of a job's progress; `result` is `written`, `gone` or `error`."""
        ...


class NoMeter:
    """A Meter that discards everything."""

    def attach(self, informers: Informers, queue: WorkQueue[tuple[str, Key]]) -> None:
        pass

    def leadership_changed(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        pass

    def reconcile_finished(self, kind: str, seconds: float, error: str) -> None:
        pass

    def cycle_finished(self, seconds: float, error: str) -> None:
        pass

    def decision_written(self, decision: str, code: str) -> None:
        pass

    def admission_rejected(self) -> None:
        pass

    def decision_rejected(self, decision: str) -> None:
        pass

    def progress_reported(self, result: str) -> None:
        pass

    def progress_written(self, result: str) -> None:
        pass
