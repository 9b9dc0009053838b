"""The interface through which the operator reports metrics, and an implementation that discards them."""

from __future__ import annotations

from typing import Protocol

from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.queue.workqueue import WorkQueue


class Meter(Protocol):
    """Receives measurements. Methods must be fast and must not raise. `error` is a class name; empty on success."""

    def attach(self, informers: World, queue: WorkQueue[tuple[str, Key]]) -> None:
        """Called once, before any other method and before the caches run."""
        ...

    def leads(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """Called when this operator starts or stops leading."""
        ...

    def reconciled(self, kind: str, seconds: float, error: str) -> None: ...

    def decided(self, seconds: float, error: str) -> None:
        """Called after each scheduling cycle and its writes."""
        ...

    def told(self, decision: str, code: str) -> None:
        """Called when a scheduling decision has been written; `code` is the code of the job's wait, if it waits."""
        ...

    def refused_admission(self) -> None:
        """Called when an admission in a job's status is rejected because the scheduler could not have decided it."""
        ...

    def refused(self, decision: str) -> None:
        """Called when a policy decision of this type was invalid; with `policy` if the policy itself failed."""
        ...


class Unmeasured:
    """A Meter that discards everything."""

    def attach(self, informers: World, queue: WorkQueue[tuple[str, Key]]) -> None:
        pass

    def leads(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        pass

    def reconciled(self, kind: str, seconds: float, error: str) -> None:
        pass

    def decided(self, seconds: float, error: str) -> None:
        pass

    def told(self, decision: str, code: str) -> None:
        pass

    def refused_admission(self) -> None:
        pass

    def refused(self, decision: str) -> None:
        pass
