"""A job as one row of `list`, and as a whole for people. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from tarragon.cli.follow.progress import STOPPING, last_condition, wait
from tarragon.cli.jobs import Known
from tarragon.cli.words import age
from tarragon.job.model import ReplicaType
from tarragon.job.phase import Phase

HEADER = ("NAME", "STATE", "READY", "RESTARTS", "AGE", "REASON")
WIDE = ("NAME", "STATE", "READY", "RESTARTS", "AGE", "KIND", "REPLICAS", "NODES", "REASON")


def header(*, is_wide: bool, names_namespace: bool) -> Sequence[str]:
    columns = WIDE if is_wide else HEADER
    return ("NAMESPACE", *columns) if names_namespace else columns


def row(job: Known, now: dt.datetime, *, is_wide: bool, names_namespace: bool) -> Sequence[str]:
    cells = [job.key.name, job.state, ready(job), str(restarts(job)), age(job.born, now)]
    if is_wide:
        cells += [job.framework.kind, replicas(job), nodes(job)]
    where = [job.key.namespace] if names_namespace else []
    return [*where, *cells, reason(job)]


def ready(job: Known) -> str:
    """`3/4`: replicas that run now, of those that are to."""
    return f"{job.status.ready}/{sum(size(job).values())}"


def size(job: Known) -> Mapping[ReplicaType, int]:
    """What it was admitted with, else what it asks for."""
    admission = job.status.admission
    return admission.size if admission is not None and admission.size else job.wished


def restarts(job: Known) -> int:
    return sum(record.total for record in job.status.restarts.values())


def replicas(job: Known) -> str:
    """`chief 1, ps 1, worker 2`."""
    return ", ".join(f"{kind.word} {number}" for kind, number in size(job).items() if number) or "-"


def nodes(job: Known) -> str:
    admission = job.status.admission
    names = sorted(set(admission.nodes.values())) if admission is not None else []
    return ",".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "-"  # noqa: PLR2004


def reason(job: Known) -> str:
    """Why it does not go on; empty where nobody would ask."""
    if job.state == STOPPING:
        return ""
    waits = wait(job.status)
    if waits is not None:
        return f"{waits.code}: {waits.message}"
    failure = job.status.first_failure
    if job.status.phase is Phase.FAILED and failure is not None:
        end = failure.reason if failure.exit_code is None else f"exit code {failure.exit_code}"
        return f"{failure.replica}: {end}"
    condition = last_condition(job.status)
    if condition is None or job.status.phase in {Phase.SUCCEEDED, Phase.RUNNING, Phase.CREATED}:
        return ""
    return condition.message.splitlines()[0] if condition.message else condition.reason
