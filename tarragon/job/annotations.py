"""The annotations of a job, for features that no generation of the API has a field for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.job.model import (
    ADOPT_ANNOTATION,
    GENERATION_ANNOTATION,
    MANIFEST_ANNOTATION,
    RUNTIME_ID_ANNOTATION,
    ReplicaSpec,
    TrainingJob,
)
from tarragon.job.tensorboard import ENDS_WITH_JOB_ANNOTATION, IMAGE_ANNOTATION, LOG_DIR_ANNOTATION
from tarragon.kube.field_reader import join_path, nearest_name

RESTART_ANNOTATION = "tarragon.dev/restart"
"""`gang`: when one replica must be replaced, all unfinished ones are replaced together. `replica`: only that one."""
RESIZE_ANNOTATION = "tarragon.dev/resize"
"""`restart`: a job that can't grow while it runs is restarted at its new size; an elastic job, at each resize."""
CHECKPOINT_SECONDS_ANNOTATION = "tarragon.dev/checkpoint-seconds"
"""`30`: the seconds that pods get to save a checkpoint after they were asked to leave."""
RETRYABLE_EXIT_CODES_ANNOTATION = "tarragon.dev/retryable-exit-codes"
"""`1,42`: exit codes that restartPolicy ExitCode retries in addition to those of its table."""
POD_GROUP_ANNOTATION = "tarragon.dev/pod-group"
"""`native`: of a job that kube-scheduler places. It gets a PodGroup of Kubernetes 1.37, so that it starts as a gang."""
LOGS_ANNOTATION = "tarragon.dev/logs"
"""`json` or `text`: the log format of the replicas. It overrides the default of the installation."""
IDEMPOTENCY_KEY_ANNOTATION = "tarragon.dev/idempotency-key"
"""The value of `submit --idempotency-key`. Submitting again with the same key refers to the same job."""

ANNOTATION_PREFIX = "tarragon.dev/"
JOB_ANNOTATIONS = frozenset(
    {
        RESTART_ANNOTATION,
        RESIZE_ANNOTATION,
        CHECKPOINT_SECONDS_ANNOTATION,
        RETRYABLE_EXIT_CODES_ANNOTATION,
        POD_GROUP_ANNOTATION,
        LOGS_ANNOTATION,
        IDEMPOTENCY_KEY_ANNOTATION,
        LOG_DIR_ANNOTATION,
        IMAGE_ANNOTATION,
        ENDS_WITH_JOB_ANNOTATION,
        ADOPT_ANNOTATION,
        GENERATION_ANNOTATION,
        MANIFEST_ANNOTATION,
        RUNTIME_ID_ANNOTATION,
    }
)
"""All annotations of Tarragon that a job may have."""
ANNOTATIONS = "metadata.annotations"

GANG = "gang"
SINGLE_REPLICA = "replica"
BY_RESTART = "restart"
NATIVE_POD_GROUP = "native"
SUPPORTED_VALUES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        RESTART_ANNOTATION: (GANG, SINGLE_REPLICA),
        RESIZE_ANNOTATION: (BY_RESTART,),
        POD_GROUP_ANNOTATION: (NATIVE_POD_GROUP,),
        LOGS_ANNOTATION: ("json", "text"),
    }
)
"""The supported values of each annotation that has a fixed set of them."""
LAST_EXIT_CODE = 255
MAX_CHECKPOINT_SECONDS = 3600
"""The maximum of `CHECKPOINT_SECONDS_ANNOTATION`: for so long a preempted pod may block its resources."""
MAX_DIGITS = 20
NAME_DEFAULT_SCHEDULER = "write schedulerName: default-scheduler in every pod template, or remove it"


def restarts_as_gang(job: TrainingJob) -> bool:
    """Whether the gang restarts as a whole.

    With MultiWorkerMirroredStrategy all workers wait for each other in every step, so replacing one does not help.
    """
    asked = job.annotations.get(RESTART_ANNOTATION)
    return job.restarts_together if asked is None else asked == GANG


def resizes_by_restart(job: TrainingJob) -> bool:
    """Whether the job is restarted in order to grow, because its running replicas reject additional ones."""
    return job.annotations.get(RESIZE_ANNOTATION) == BY_RESTART


def is_elastic_by_restart(job: TrainingJob) -> bool:
    """Whether every resize of an elastic job restarts it, because each replica is configured for one exact size."""
    return job.elastic_policy is not None and (resizes_by_restart(job) or restarts_as_gang(job))


def has_native_pod_group(job: TrainingJob) -> bool:
    """Whether kube-scheduler is to place the job's pods as a gang, by a PodGroup of Kubernetes itself."""
    return job.annotations.get(POD_GROUP_ANNOTATION) == NATIVE_POD_GROUP


def checkpoint_seconds(job: TrainingJob) -> int:
    """The seconds to save a checkpoint; 0 if the annotation is missing or invalid.

    With 0 a pod gets only SIGTERM and its termination grace period.
    """
    value = job.annotations.get(CHECKPOINT_SECONDS_ANNOTATION, "0")
    return int(value) if _is_checkpoint_time(value) else 0


def retryable_exit_codes(job: TrainingJob) -> frozenset[int]:
    """The additional retryable exit codes. Invalid ones are ignored."""
    return frozenset(int(code) for code in _codes(job) if _is_exit_code(code))


def validate_annotations(job: TrainingJob) -> Iterator[Problem]:
    """Report invalid values of annotations. Otherwise they would have no effect, and users would notice too late."""
    for name, supported in SUPPORTED_VALUES.items():
        value = job.annotations.get(name, supported[0])
        if value not in supported:
            message = f"unsupported value {value!r}"
            yield Problem(join_path(ANNOTATIONS, name), message, f"write {' or '.join(supported)}, or remove it")
    yield from _pod_group_problems(job)
    invalid = [code for code in _codes(job) if not _is_exit_code(code)]
    if invalid:
        message = f"must be exit codes from 1 to {LAST_EXIT_CODE}, not {invalid[0]!r}"
        yield Problem(join_path(ANNOTATIONS, RETRYABLE_EXIT_CODES_ANNOTATION), message, "write for example 1,42")
    seconds = job.annotations.get(CHECKPOINT_SECONDS_ANNOTATION, "0")
    if not _is_checkpoint_time(seconds):
        message = f"must be a number of seconds from 0 to {MAX_CHECKPOINT_SECONDS}, not {seconds!r}"
        yield Problem(join_path(ANNOTATIONS, CHECKPOINT_SECONDS_ANNOTATION), message, 'write for example "30"')


def with_supported_values(problem: Problem) -> Problem:
    """Name the supported values in the remedy for an annotation that is not a string.

    An unquoted `yes` is a boolean in YAML. The general remedy, to quote it, would give another unsupported value.
    """
    supported = next(
        (values for name, values in SUPPORTED_VALUES.items() if problem.path == join_path(ANNOTATIONS, name)), ()
    )
    if not supported:
        return problem
    return replace(problem, remedy=f"write {' or '.join(map(_quoted, supported))}, or remove it")


def warn_about_misspelled_annotations(job: TrainingJob) -> Iterator[Problem]:
    """Warn of annotations that look misspelled. A warning only: later versions or other tools may define them."""
    for name in job.annotations:
        group, _, own = name.partition("/")
        if f"{group}/" == ANNOTATION_PREFIX and name not in JOB_ANNOTATIONS and not own.endswith("-extra"):
            suggestion = nearest_name(own, (known.removeprefix(ANNOTATION_PREFIX) for known in JOB_ANNOTATIONS))
            if suggestion is not None:
                yield Problem(
                    join_path(ANNOTATIONS, name), "unknown annotation", f"did you mean {ANNOTATION_PREFIX}{suggestion}?"
                )


def _pod_group_problems(job: TrainingJob) -> Iterator[Problem]:
    if not has_native_pod_group(job):
        return
    path = join_path(ANNOTATIONS, POD_GROUP_ANNOTATION)
    names = sorted({_scheduler_name(group) for group in job.replica_specs if group.replicas})
    if not all(_scheduler_name(group) for group in job.replica_specs):
        message = "concerns only jobs that kube-scheduler places, and Tarragon would place this one"
        yield Problem(path, message, NAME_DEFAULT_SCHEDULER)
    elif len(names) > 1:
        message = f"concerns only jobs that one scheduler places, not {' and '.join(names)}"
        yield Problem(path, message, "write the same schedulerName in every pod template, or remove it")


def _quoted(word: str) -> str:
    return f'"{word}"'


def _scheduler_name(group: ReplicaSpec) -> str:
    name: str = group.template.get("spec", {}).get("schedulerName", "")
    return name


def _codes(job: TrainingJob) -> list[str]:
    value = job.annotations.get(RETRYABLE_EXIT_CODES_ANNOTATION)
    return [] if value is None else [code.strip() for code in value.split(",")]


def _is_checkpoint_time(value: str) -> bool:
    is_number = value.isascii() and value.isdecimal() and len(value) < MAX_DIGITS
    return is_number and int(value) <= MAX_CHECKPOINT_SECONDS


def _is_exit_code(code: str) -> bool:
    return code.isascii() and code.isdecimal() and len(code) < MAX_DIGITS and 1 <= int(code) <= LAST_EXIT_CODE
