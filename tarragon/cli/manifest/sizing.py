"""The resources that jobs request, and their GPU-hours: shown before a large job is submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarragon.base.quantity import format_decimal
from tarragon.base.resources import CPU, MEMORY, WHOLE_GPU
from tarragon.cli.jobview.gpus import accelerators, count_of_gpus
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.output.words import table
from tarragon.job.model import ReplicaSpec, TrainingJob
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.nodes.replica_requests import group_request

_GIB = 2**30
_HOUR = 3600
MANY_REPLICAS = 64
"""A job with more replicas than this is large, whatever they request."""


def training_jobs(loaded: Iterable[LoadedJob]) -> Sequence[TrainingJob]:
    return [job for each in loaded if (job := decode_and_validate(each.framework, each.job).job) is not None]


def gpu_count(jobs: Iterable[TrainingJob]) -> int:
    """Returns the GPUs of all replicas, in thousandths."""
    return sum(group.replicas * accelerators(group_request(group)) for job in jobs for group in job.replica_specs)


def requested_cpus(jobs: Iterable[TrainingJob]) -> int:
    """Returns the CPUs that all replicas request, in thousandths."""
    return sum(group.replicas * group_request(group).get(CPU, 0) for job in jobs for group in job.replica_specs)


def is_large(jobs: Sequence[TrainingJob], most_gpus: int) -> bool:
    return (
        gpu_count(jobs) > most_gpus * WHOLE_GPU
        or sum(group.replicas for job in jobs for group in job.replica_specs) > MANY_REPLICAS
    )


def size_table(jobs: Sequence[TrainingJob]) -> Iterator[str]:
    """Yields a table with a row per replica type, the total, and the possible GPU-hours."""
    rows = [_row(job, group) for job in jobs for group in job.replica_specs if group.replicas]
    total: Counter[str] = Counter()
    for job in jobs:
        for group in job.replica_specs:
            total.update({name: amount * group.replicas for name, amount in group_request(group).items()})
    number = sum(group.replicas for job in jobs for group in job.replica_specs)
    rows.append(("all", "", str(number), *_amounts(total)))
    yield from table(("JOB", "TYPE", "REPLICAS", "CPUS", "MEMORY", "GPUS"), rows)
    if all_gpus := gpu_count(jobs):
        yield _hours(jobs, all_gpus)


def _row(job: TrainingJob, group: ReplicaSpec) -> Sequence[str]:
    return (job.key.name, group.type.lower(), str(group.replicas), *_amounts(group_request(group)))


def _amounts(request: Mapping[str, int]) -> Sequence[str]:
    """Formats a request, which is in thousandths."""
    memory = request.get(MEMORY, 0) / 1000 / _GIB
    return f"{request.get(CPU, 0) / 1000:g}", f"{memory:.1f} GiB", format_decimal(accelerators(request))


def _hours(jobs: Sequence[TrainingJob], number: int) -> str:
    limits = [job.run_policy.active_deadline_seconds for job in jobs]
    if None in limits:
        hourly = f"{count_of_gpus(number)}: {count_of_gpus(number, 'GPU-hour')} per hour"
        return f"{hourly}, without a limit (set runPolicy.activeDeadlineSeconds)"
    seconds = sum(gpu_count([job]) * (job.run_policy.active_deadline_seconds or 0) for job in jobs)
    hours = seconds / WHOLE_GPU / _HOUR
    return f"{count_of_gpus(number)}: at most {hours:g} GPU-hours (activeDeadlineSeconds)"
