"""Which admissions count: those that this operator's scheduler has decided, or has looked at and found possible.

Whoever may write a job's status can write an admission. The reconciler makes no pods by one before the scheduler has
looked at it. Nothing of this outlives the operator: a new one looks at each admission once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from tarragon.job.encoding import raw_admission, read_status
from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.kube.meta import CustomObject, Json
from tarragon.operator.informers.candidates import JobId, takes_part
from tarragon.plan.nodes.left_to_kube_scheduler import is_left

COMPARED = ("admitted", "nodes", "size")
"""Fields of an admission that say who may run where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What counts of a job's admission."""

    uid: str
    admission: Admission | None
    """On record when it was looked at last."""
    places: Mapping[Replica, str] = field(default_factory=dict)
    """Those of it that were decided or found possible; not those of replicas that were finished from the first."""
    decided: Admission | None = None
    """The scheduler's last decision, which may not be on record yet."""

    @property
    def sound(self) -> Admission | None:
        """What stood there, if all of its places count."""
        if self.admission is None or any(replica not in self.places for replica in self.admission.nodes):
            return None
        return self.admission

    def covers(self, admission: Admission, finished: AbstractSet[Replica]) -> bool:
        """Whether the admission has no place and no size but those that count."""
        counting = [each for each in (self.admission, self.decided) if each is not None]
        if is_left(admission) and all(admission.size != each.size for each in counting):
            return False
        if admission.nodes == self.places:
            return True
        unasked = self.unasked(finished)
        places = self.places_of(admission)
        return all(replica in places or unasked.get(replica) == node for replica, node in admission.nodes.items())

    def unasked(self, finished: AbstractSet[Replica]) -> Mapping[Replica, str]:
        """Places that were there from the first, of replicas that were finished then, and are: they hold nothing."""
        nodes = {} if self.admission is None else self.admission.nodes
        return {replica: nodes[replica] for replica in finished if replica in nodes and replica not in self.places}

    def places_of(self, admission: Admission) -> Mapping[Replica, str]:
        """Of all places of the admission, those that count."""
        decided = {} if self.decided is None else self.decided.nodes
        return {
            replica: node
            for replica, node in admission.nodes.items()
            if node in (self.places.get(replica), decided.get(replica))
        }


class Verified:
    """By job. One that is not of the scheduler's concern counts as it stands, in the version that was looked at."""

    def __init__(self) -> None:
        self._known: dict[JobId, Known] = {}
        self._counts: dict[JobId, tuple[str, Json]] = {}
        self._passed: dict[JobId, str] = {}
        self._asked_for: set[JobId] = set()
        self._handlers: list[Callable[[JobId], None]] = []

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job that `counts` has denied and that may be looked at now."""
        self._handlers.append(handler)

    def known(self, job: JobId, uid: str) -> Known | None:
        """None for a job that this operator has not looked at yet."""
        found = self._known.get(job)
        return found if found is not None and found.uid == uid else None

    def decided(self, job: JobId, uid: str, admission: Admission) -> None:
        """To be told before it is written: no answer, or one that comes late, makes it nobody else's."""
        known = self.known(job, uid) or Known(uid=uid, admission=None)
        self._known[job] = replace(known, decided=admission)

    def verify(
        self, job: JobId, found: CustomObject, admission: Admission | None, places: Mapping[Replica, str]
    ) -> None:
        """The admission of this object counts, `places` of it from now on whatever happens to the cluster."""
        uid = found.metadata.uid
        known = self.known(job, uid)
        decided = known.decided if known is not None else None
        self._known[job] = Known(uid=uid, admission=admission, places=places, decided=decided)
        self._counts[job] = uid, _compared(found)
        self._passed.pop(job, None)
        self._tell(job)

    def pass_over(self, job: JobId, found: CustomObject) -> None:
        """Nothing is to be decided about the job as it is."""
        self._known.pop(job, None)
        self._counts.pop(job, None)
        self._passed[job] = found.metadata.resource_version
        self._tell(job)

    def suspect(self, job: JobId) -> None:
        """What is on record of it is not to be acted on, until it is verified or replaced."""
        self._counts.pop(job, None)
        self._passed.pop(job, None)

    def forget(self, job: JobId) -> None:
        """It is gone."""
        self._known.pop(job, None)
        self._counts.pop(job, None)
        self._passed.pop(job, None)
        self._asked_for.discard(job)

    def counts(self, job: JobId, found: CustomObject) -> bool:
        """Whether the reconciler may act on this object's admission. If not, it is told when to look again."""
        compared = _compared(found)
        if compared["admitted"] is None:
            return True
        if self._counts.get(job) == (found.metadata.uid, compared):
            return True
        if self._passed.get(job) == found.metadata.resource_version:
            return True
        if not takes_part(found, read_status(found.status)):
            return True  # It is only marked, cleaned up, or left alone.
        self._asked_for.add(job)
        return False

    def _tell(self, job: JobId) -> None:
        if job in self._asked_for:
            self._asked_for.discard(job)
            for handler in self._handlers:
                handler(job)


def _compared(found: CustomObject) -> Mapping[str, Json]:
    admission = raw_admission(found.status)
    return {name: admission.get(name) for name in COMPARED}
