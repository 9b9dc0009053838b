"""A job as one row of `list`. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tarragon.base.quantity import format_decimal
from tarragon.cli.jobview.exits import exit_text
from tarragon.cli.jobview.gpus import accelerators_of_job
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import INTERRUPTED, STOPPING, last_condition
from tarragon.cli.output.words import age, span
from tarragon.job import conditions
from tarragon.job.model import ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.places import node_of
from tarragon.job.progress import progress_text
from tarragon.job.status import UNASSIGNED, Condition
from tarragon.job.status_reason import last_words, reason_of
from tarragon.job.work import with_measured_remaining
from tarragon.plan.reconcile.manager_on_record import (
    BATCH_JOBS_MANAGER,
    is_run_by_batch_jobs,
    named_manager,
    needs_adoption,
)

HEADER = ("NAME", "STATE", "READY", "GPUS", "QUEUE", "RESTARTS", "DURATION", "AGE", "PROGRESS OR REASON")
OF_SEVERAL_KINDS = (*HEADER[:-1], "KIND", HEADER[-1])
WIDE = (*OF_SEVERAL_KINDS[:-1], "REPLICAS", "NODES", HEADER[-1])
OPTIONAL_COLUMNS = MappingProxyType({"GPUS": {"-"}, "QUEUE": {"-"}, "RESTARTS": {"0", "-"}, "DURATION": {"-"}})
"""Columns that are left out on a narrow terminal if all of their cells have one of these values."""


NOT_PROCESSED = "no operator has processed it yet"
OTHER_OPERATOR = (
    "another operator runs it; to hand it to Tarragon: "
    "kubectl annotate -n {key.namespace} {kind} {key.name} tarragon.dev/adopt=true"
)
MANAGED_BY_OTHER = "left to {manager}, which its spec.runPolicy.managedBy names"

LEFT_OUT = ("AGE", "DURATION", "READY", "RESTARTS")
"""Columns that a narrow terminal leaves out, in this order, until the last column has its MIN_REASON_WIDTH."""
MIN_NAME_WIDTH, MIN_REASON_WIDTH = 16, 36
"""Characters that both columns keep on a narrow terminal: room for `step 1,200/4,000 (30 %) · loss 0.11`."""
MIN_WIDE_REASON_WIDTH = 20
"""The same for `-o wide`, which leaves out empty columns only."""
_ERROR_IN_PROGRAM = f"{exit_text(1)}: "
MIN_WIDTHS = MappingProxyType(
    {"NAMESPACE": 10, "NAME": 20, "STATE": 11, "READY": 5, "KIND": 6, "REPLICAS": 28, "NODES": 12}
)
"""Minimum widths of columns, for tables whose later rows are not known yet."""


def min_width_row(header: Sequence[str]) -> Sequence[str]:
    """Returns a blank row that gives the columns their minimum widths."""
    return [" " * max(len(column), MIN_WIDTHS.get(column, 0)) for column in header]


def deleted_row(cells: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    """Returns the last row of a job that was deleted."""
    last = {"STATE": "Deleted", "READY": "-", "PROGRESS OR REASON": ""}
    return [last.get(column, cell) for column, cell in zip(header, cells, strict=True)]


def header(*, is_wide: bool, names_namespace: bool, names_kind: bool = False) -> Sequence[str]:
    columns = WIDE if is_wide else OF_SEVERAL_KINDS if names_kind else HEADER
    return ("NAMESPACE", *columns) if names_namespace else columns


def job_row(
    job: ClusterJob,
    now: dt.datetime,
    *,
    is_wide: bool,
    names_namespace: bool,
    names_kind: bool = False,
    place: int | None = None,
) -> Sequence[str]:
    """Returns the job's cells. `place` is its position in the queue, if known."""
    queue = "-" if place is None else str(place)
    cells = [job.key.name, job.state, ready(job), gpus(job), queue, str(restarts(job)), duration(job, now)]
    cells.append(age(job.created, now))
    if is_wide or names_kind:
        cells.append(job.framework.kind)
    if is_wide:
        cells += [replicas(job), nodes(job)]
    where = [job.key.namespace] if names_namespace else []
    return [*where, *cells, reason(job) or training(job, now)]


def ready(job: ClusterJob) -> str:
    """`3/4`: the running replicas and the size of the job."""
    running = 0 if job.state == INTERRUPTED else job.status.running_replicas
    return f"{running}/{sum(current_size(job).values())}"


def gpus(job: ClusterJob) -> str:
    """The accelerators of all its replicas: `8`, `0.5`."""
    found = accelerators_of_job(job, current_size(job))
    return format_decimal(found) if found else "-"


def fit_width(rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Returns rows that are too wide without the columns that say least, and with shorter names if need be.

    The first row is the header. The last column may still be too wide: it is cut by the caller.
    """
    columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    if _width(columns) <= width:
        return rows
    kept = _without_empty(columns)
    for title in LEFT_OUT:
        if _excess(kept, MIN_REASON_WIDTH, width) > 0:
            kept = [column for column in kept if column[0] != title]
    named = _with_short_names(kept, _excess(kept, MIN_REASON_WIDTH, width))
    return list(zip(*_with_brief_reasons(named, width), strict=True))


def fit_wide_table(rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Returns the rows of `-o wide` that are too wide without empty columns, and with shorter names if need be."""
    columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    if _width(columns) <= width:
        return rows
    kept = _without_empty(columns)
    named = _with_short_names(kept, _excess(kept, MIN_WIDE_REASON_WIDTH, width))
    return list(zip(*_with_brief_reasons(named, width), strict=True))


def brief_reason(text: str) -> str:
    """Returns the reason for a column that may cut it: without exit code 1, which an exception behind it implies."""
    words, shorter = f" with {_ERROR_IN_PROGRAM}", ": "
    return text.replace(words, shorter, 1) if words in text else text.replace(_ERROR_IN_PROGRAM, "", 1)


def _with_brief_reasons(columns: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Makes room for the class of an exception, and the beginning of its message, where the reason is cut."""
    room = width - _width([*columns[:-1], ("",)])
    return [*columns[:-1], [cell if len(cell) <= room else brief_reason(cell) for cell in columns[-1]]]


def _without_empty(columns: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    return [column for column in columns if not {*column[1:]} <= OPTIONAL_COLUMNS.get(column[0], set())]


def _excess(columns: Sequence[Sequence[str]], min_reason: int, width: int) -> int:
    """Returns the characters by which the table is too wide even if its last column has no more than `min_reason`."""
    longest = max(map(len, columns[-1]))
    return _width(columns) - longest + min(longest, min_reason) - width


def _with_short_names(columns: Sequence[Sequence[str]], excess: int) -> Sequence[Sequence[str]]:
    if excess <= 0:
        return columns
    return [_shorter(column, excess) if column[0] == "NAME" else column for column in columns]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 3 for column in columns) - 3


def _shorter(names: Sequence[str], by: int) -> Sequence[str]:
    """Shortens names in the middle: similar jobs usually differ at the end of their names."""
    room = max(MIN_NAME_WIDTH, max(map(len, names)) - by)
    half = (room - 1) // 2
    return [name if len(name) <= room else f"{name[: room - 1 - half]}…{name[-half:]}" for name in names]


def current_size(job: ClusterJob) -> Mapping[ReplicaType, int]:
    """The size with which the job was admitted, else the requested size."""
    admission = job.status.admission
    return admission.size if admission is not None and admission.size else job.requested


def restarts(job: ClusterJob) -> int:
    return job.status.total_restarts


def duration(job: ClusterJob, now: dt.datetime) -> str:
    """How long the job ran, or has been running: from its start, also before a restart, to its end.

    When a suspended or interrupted job stopped running is not in its status.
    """
    started, ended = job.status.start_time, job.status.completion_time
    if started is None or (ended is None and job.state in {INTERRUPTED, Phase.SUSPENDED}):
        return "-"
    return span((ended or now) - started)


def replicas(job: ClusterJob) -> str:
    """`chief 1, ps 1, worker 2`; if the job runs smaller than requested, `worker 2 (3 requested)`."""
    current = current_size(job)
    kinds = dict.fromkeys([*job.requested, *current])  # in the order of the manifest, not in that of the start
    sizes = ((kind, current.get(kind, 0)) for kind in kinds)
    counts = (f"{kind.lower()} {number}{_requested(job, kind, number)}" for kind, number in sizes if number)
    return ", ".join(counts) or "-"


def _requested(job: ClusterJob, kind: ReplicaType, number: int) -> str:
    requested = job.requested.get(kind, number)
    return f" ({requested} requested)" if requested != number else ""


def nodes(job: ClusterJob) -> str:
    admission = job.status.admission
    names = sorted(set(map(node_of, admission.nodes.values())) - {UNASSIGNED}) if admission is not None else []
    return ",".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "-"  # noqa: PLR2004


def reason(job: ClusterJob) -> str:
    """Why the job makes no progress, or failed; empty for a job that runs or succeeded."""
    if job.state in {STOPPING, INTERRUPTED}:
        return "resumes when the cluster starts" if job.state == INTERRUPTED else ""
    if other_operator := _other_operator(job):
        return other_operator
    explanation = reason_of(job.status)
    if explanation.reason and not job.status.phase.is_final:
        return f"{explanation.reason}: {explanation.message}"
    failure = job.status.first_failure
    if job.status.phase is Phase.FAILED and failure is not None:
        end = failure.reason if failure.exit_code is None else exit_text(failure.exit_code)
        return ": ".join(filter(None, (str(failure.replica), end, last_words(failure))))
    condition = last_condition(job.status)
    if not job.is_processed:
        return NOT_PROCESSED
    if condition is None or job.status.phase in {Phase.SUCCEEDED, Phase.RUNNING, Phase.CREATED}:
        return ""
    return _text_of(condition)


def training(job: ClusterJob, now: dt.datetime) -> str:
    """How far the training is: `step 1,200/4,000 (30 %) · loss 0.11 · 2m left`; empty if nothing is known."""
    progress = job.status.progress
    if progress is not None:
        progress = with_measured_remaining(progress, job.status.work)
    if progress is not None and (job.status.phase is not Phase.RUNNING or job.state in {STOPPING, INTERRUPTED}):
        progress = replace(progress, remaining_seconds=None)
    if progress is not None and job.status.phase is Phase.SUCCEEDED and progress.percentage not in {None, 100}:
        # The last lines of a program come too late to be read: `98 %` of a job that succeeded would be false.
        progress = replace(progress, done=None)
    return progress_text(progress, now)


def _text_of(condition: Condition) -> str:
    if condition.type == conditions.SUSPENDED and condition.is_true:
        return ""  # its state says it
    return condition.message.splitlines()[0] if condition.message else condition.reason


def _other_operator(job: ClusterJob) -> str:
    if manager := named_manager(job.object.spec):
        return MANAGED_BY_OTHER.format(manager=manager)
    if is_run_by_batch_jobs(job.object, job.dialect):
        return f"left to {BATCH_JOBS_MANAGER.name}; {BATCH_JOBS_MANAGER.remedy}"
    if needs_adoption(job.object):
        return OTHER_OPERATOR.format(kind=job.framework.kind.lower(), key=job.key)
    return job.left_to
