"""The resources that jobs request, and their GPU-hours: shown before a large job is submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.jobview.gpus import accelerators
from tarragon.cli.manifest.loading import Loaded
from tarragon.cli.output.words import count, table
from tarragon.job.model import ReplicaGroup, TrainingJob
from tarragon.plan.input.decode_and_validate import intake
from tarragon.plan.nodes.capacity import group_request

_GIB = 2**30
_HOUR = 3600
MANY_REPLICAS = 64
"""A job with more replicas than this is large, whatever they request."""


def read(loaded: Iterable[Loaded]) -> Sequence[TrainingJob]:
    return [job for each in loaded if (job := intake(each.framework, each.job).job) is not None]


def gpus(jobs: Iterable[TrainingJob]) -> int:
    return sum(group.wish * accelerators(group_request(group)) for job in jobs for group in job.groups)


def is_large(jobs: Sequence[TrainingJob], most_gpus: int) -> bool:
    return gpus(jobs) > most_gpus or sum(group.wish for job in jobs for group in job.groups) > MANY_REPLICAS


def told(jobs: Sequence[TrainingJob]) -> Iterator[str]:
    """Yields a table with a row per replica type, the total, and the possible GPU-hours."""
    rows = [_row(job, group) for job in jobs for group in job.groups if group.wish]
    total: Counter[str] = Counter()
    for job in jobs:
        for group in job.groups:
            total.update({name: amount * group.wish for name, amount in group_request(group).items()})
    number = sum(group.wish for job in jobs for group in job.groups)
    rows.append(("all", "", str(number), *_amounts(total)))
    yield from table(("JOB", "TYPE", "REPLICAS", "CPUS", "MEMORY", "GPUS"), rows)
    if all_gpus := gpus(jobs):
        yield _hours(jobs, all_gpus)


def _row(job: TrainingJob, group: ReplicaGroup) -> Sequence[str]:
    return (job.key.name, group.type.word, str(group.wish), *_amounts(group_request(group)))


def _amounts(request: Mapping[str, int]) -> Sequence[str]:
    """Formats a request, which is in thousandths."""
    memory = request.get(MEMORY, 0) / 1000 / _GIB
    return f"{request.get(CPU, 0) / 1000:g}", f"{memory:.1f} GiB", str(accelerators(request))


def _hours(jobs: Sequence[TrainingJob], number: int) -> str:
    limits = [job.run_policy.active_deadline for job in jobs]
    if None in limits:
        hourly = f"{count(number, 'GPU')}: {count(number, 'GPU-hour')} per hour"
        return f"{hourly}, without a limit (set runPolicy.activeDeadlineSeconds)"
    hours = sum(gpus([job]) * (job.run_policy.active_deadline or 0) for job in jobs) / _HOUR
    return f"{count(number, 'GPU')}: at most {hours:g} GPU-hours (activeDeadlineSeconds)"
