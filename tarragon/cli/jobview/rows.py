"""A job as one row of `list`, and as a whole for people. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tarragon.cli.jobview.exits import ended
from tarragon.cli.jobview.gpus import of_job
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.progress import INTERRUPTED, STOPPING, last_condition
from tarragon.cli.output.words import age
from tarragon.job.model import ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.reason import reason_of
from tarragon.job.status import NOWHERE, Condition
from tarragon.plan.reconcile.managed_by import BATCH_JOBS, is_for_batch_jobs, is_to_be_asked_for

HEADER = ("NAME", "STATE", "READY", "GPUS", "QUEUE", "RESTARTS", "AGE", "REASON")
WIDE = ("NAME", "STATE", "READY", "GPUS", "QUEUE", "RESTARTS", "AGE", "KIND", "REPLICAS", "NODES", "REASON")
QUIET = MappingProxyType({"GPUS": {"-"}, "QUEUE": {"-"}, "RESTARTS": {"0", "-"}})
"""Columns that a small terminal can do without where they say nothing else of any job."""


UNSEEN = "no operator has looked at it yet"
BEGUN_BY_OTHERS = (
    "another operator has begun it; kubectl annotate -n {key.namespace} {kind} {key.name} tarragon.dev/adopt=true "
    "gives it to Tarragon"
)

LEAST_NAME, LEAST_REASON = 16, 20
"""Characters that stay of both on a small terminal: names give way first."""
LEAST = MappingProxyType({"NAMESPACE": 10, "NAME": 20, "STATE": 11, "READY": 5, "KIND": 6, "REPLICAS": 28, "NODES": 12})
"""Characters that a column has at least where later rows are not known yet."""


def least(header: Sequence[str]) -> Sequence[str]:
    """A row that makes the columns wide enough for what usually comes."""
    return [" " * max(len(column), LEAST.get(column, 0)) for column in header]


def deleted(cells: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    """The last row of a job that is not there any more."""
    last = {"STATE": "Deleted", "READY": "-", "REASON": ""}
    return [last.get(column, cell) for column, cell in zip(header, cells, strict=True)]


def header(*, is_wide: bool, names_namespace: bool) -> Sequence[str]:
    columns = WIDE if is_wide else HEADER
    return ("NAMESPACE", *columns) if names_namespace else columns


def row(
    job: Known, now: dt.datetime, *, is_wide: bool, names_namespace: bool, place: int | None = None
) -> Sequence[str]:
    """`place`: where in the queue it stands, as far as that is known."""
    queue = "-" if place is None else str(place)
    cells = [job.key.name, job.state, ready(job), gpus(job), queue, str(restarts(job)), age(job.born, now)]
    if is_wide:
        cells += [job.framework.kind, replicas(job), nodes(job)]
    where = [job.key.namespace] if names_namespace else []
    return [*where, *cells, reason(job)]


def ready(job: Known) -> str:
    """`3/4`: replicas that run now, of those that are to."""
    running = 0 if job.state == INTERRUPTED else job.status.ready
    return f"{running}/{sum(size(job).values())}"


def gpus(job: Known) -> str:
    """Those of all its replicas together."""
    return str(of_job(job, size(job)) or "-")


def fitting(rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """The same without quiet columns, and with shorter names, if a row would be wider. The first row is the header.

    The last column, the reason, may be cut at the edge, but not all of it.
    """
    columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    if _width(columns) <= width:
        return rows
    kept = [column for column in columns if not {*column[1:]} <= QUIET.get(column[0], set())]
    longest = max(map(len, kept[-1]))
    too_much = _width(kept) - longest + min(longest, LEAST_REASON) - width
    if too_much > 0:
        kept = [_shorter(column, too_much) if column[0] == "NAME" else column for column in kept]
    return list(zip(*kept, strict=True))


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 3 for column in columns) - 3


def _shorter(names: Sequence[str], by: int) -> Sequence[str]:
    """Without their middles: it is their ends by which jobs of one family differ."""
    room = max(LEAST_NAME, max(map(len, names)) - by)
    half = (room - 1) // 2
    return [name if len(name) <= room else f"{name[: room - 1 - half]}…{name[-half:]}" for name in names]


def size(job: Known) -> Mapping[ReplicaType, int]:
    """What it was admitted with, else what it asks for."""
    admission = job.status.admission
    return admission.size if admission is not None and admission.size else job.wished


def restarts(job: Known) -> int:
    return sum(record.total for record in job.status.restarts.values())


def replicas(job: Known) -> str:
    """`chief 1, ps 1, worker 2`; with the wish where it is another one: `worker 2 (3 wished)`."""
    there = size(job)
    counts = (f"{kind.word} {number}{_wish(job, kind, number)}" for kind, number in there.items() if number)
    return ", ".join(counts) or "-"


def _wish(job: Known, kind: ReplicaType, number: int) -> str:
    wished = job.wished.get(kind, number)
    return f" ({wished} wished)" if wished != number else ""


def nodes(job: Known) -> str:
    admission = job.status.admission
    names = sorted(set(admission.nodes.values()) - {NOWHERE}) if admission is not None else []
    return ",".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "-"  # noqa: PLR2004


def reason(job: Known) -> str:
    """Why it does not go on; empty where nobody would ask."""
    if job.state in {STOPPING, INTERRUPTED}:
        return "goes on when the cluster starts" if job.state == INTERRUPTED else ""
    if begun := _begun_by_others(job):
        return begun
    why = reason_of(job.status)
    if why.word and not job.status.phase.is_final:
        return f"{why.word}: {why.message}"
    failure = job.status.first_failure
    if job.status.phase is Phase.FAILED and failure is not None:
        if failure.exit_code is not None:
            return f"{failure.replica}: {ended(failure.exit_code)}"
        last = failure.message.strip().rpartition("\n")[2]
        return ": ".join(filter(None, (str(failure.replica), failure.reason, last)))
    condition = last_condition(job.status)
    if not job.status.conditions and job.status.phase is Phase.CREATED:
        return UNSEEN
    if condition is None or job.status.phase in {Phase.SUCCEEDED, Phase.RUNNING, Phase.CREATED}:
        return ""
    return _told_last(condition)


def _told_last(condition: Condition) -> str:
    if condition.message.endswith(" is suspended"):
        return ""  # its state says it
    return condition.message.splitlines()[0] if condition.message else condition.reason


def _begun_by_others(job: Known) -> str:
    if is_for_batch_jobs(job.object, job.dialect):
        return f"left to {BATCH_JOBS.name}; {BATCH_JOBS.remedy}"
    if is_to_be_asked_for(job.object):
        return BEGUN_BY_OTHERS.format(kind=job.framework.kind.lower(), key=job.key)
    return ""
