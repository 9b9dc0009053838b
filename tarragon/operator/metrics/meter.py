"""What the operator tells whoever measures it. It works the same when nobody does."""

from __future__ import annotations

from typing import Protocol

from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.queue.workqueue import WorkQueue


class Meter(Protocol):
    """Must be quick and must not raise. An error is told by its class's name; empty: it went well."""

    def attach(self, world: World, queue: WorkQueue[tuple[str, Key]]) -> None:
        """Once, before anything else is told, and before the caches run."""
        ...

    def leads(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """Whether this operator decides and writes, from now on."""
        ...

    def reconciled(self, kind: str, seconds: float, error: str) -> None: ...

    def decided(self, seconds: float, error: str) -> None:
        """A round of admission, its writes included."""
        ...

    def told(self, decision: str, code: str) -> None:
        """A decision about a job that is on record now; the code is that of its wait, if it waits."""
        ...

    def refused_admission(self) -> None:
        """An admission on record that the scheduler could not have decided, and that counts for nothing now."""
        ...

    def refused(self, decision: str) -> None:
        """A decision that a policy must not make, or `policy` where it made none because it failed."""
        ...


class Unmeasured:
    """Nobody measures."""

    def attach(self, world: World, queue: WorkQueue[tuple[str, Key]]) -> None:
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
