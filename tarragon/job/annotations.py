"""What a job asks for by annotations: what no generation of the API has a field for, and each of them may want."""

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
    TrainingJob,
)
from tarragon.job.tensorboard import ENDS_WITH_JOB, FOLDER, IMAGE
from tarragon.kube.reader import joined, nearest

RESTART = "tarragon.dev/restart"
"""`gang`: when one replica is to be replaced, all that have not finished are, together."""
RESIZE = "tarragon.dev/resize"
"""`restart`: a job that can't grow while it runs is started again at its new size; an elastic one by each new size."""
CHECKPOINT_SECONDS = "tarragon.dev/checkpoint-seconds"
"""`30`: for so long its pods go on after they were told to leave, to save what they have done."""
RETRYABLE = "tarragon.dev/retryable-exit-codes"
"""`1,42`: what the restart policy ExitCode tries again besides the codes of its table."""
LOGS = "tarragon.dev/logs"
"""`json` or `text`: how its replicas log, whatever is usual for the installation."""
IDEMPOTENCY_KEY = "tarragon.dev/idempotency-key"
"""What `submit --idempotency-key` was given: who submits with the same key again means this very job."""

OURS = "tarragon.dev/"
KNOWN = frozenset(
    {
        RESTART,
        RESIZE,
        CHECKPOINT_SECONDS,
        RETRYABLE,
        LOGS,
        IDEMPOTENCY_KEY,
        FOLDER,
        IMAGE,
        ENDS_WITH_JOB,
        ADOPT_ANNOTATION,
        GENERATION_ANNOTATION,
        MANIFEST_ANNOTATION,
        RUNTIME_ID_ANNOTATION,
    }
)
"""What a job may bear."""
ANNOTATIONS = "metadata.annotations"

GANG = "gang"
BY_RESTART = "restart"
MEANINGS: Mapping[str, Sequence[str]] = MappingProxyType(
    {RESTART: (GANG,), RESIZE: (BY_RESTART,), LOGS: ("json", "text")}
)
"""The values that each of these understands."""
LAST_EXIT_CODE = 255
LONGEST_SAVING = 3600
"""Seconds that a place may be kept for somebody who has lost it."""
LONGEST_NUMBER = 20


def restarts_together(job: TrainingJob) -> bool:
    """Where all wait for each other in every step (MultiWorkerMirroredStrategy), one new replica helps nobody."""
    return job.annotations.get(RESTART) == GANG


def resizes_by_restart(job: TrainingJob) -> bool:
    """Where those that run can't use more: they were told of so many, and turn others away."""
    return job.annotations.get(RESIZE) == BY_RESTART


def is_elastic_by_restart(job: TrainingJob) -> bool:
    """Each of its sizes is a world of its own, in which every replica knows of exactly those that there are."""
    return job.elastic is not None and (resizes_by_restart(job) or restarts_together(job))


def seconds_to_save(job: TrainingJob) -> int:
    """None at all where it can't be read: then SIGTERM and the pod's own grace are all the warning there is."""
    written = job.annotations.get(CHECKPOINT_SECONDS, "0")
    return int(written) if _is_time_to_save(written) else 0


def retryable_codes(job: TrainingJob) -> frozenset[int]:
    """Those that can be read."""
    return frozenset(int(code) for code in _codes(job) if _is_exit_code(code))


def annotations_are_understood(job: TrainingJob) -> Iterator[Problem]:
    """An annotation with a slip in it would be as good as none, and nobody would know before it is needed."""
    for name, meant in MEANINGS.items():
        found = job.annotations.get(name, meant[0])
        if found not in meant:
            said = f"has no meaning as {found!r}"
            yield Problem(joined(ANNOTATIONS, name), said, f"write {' or '.join(meant)}, or remove it")
    wrong = [code for code in _codes(job) if not _is_exit_code(code)]
    if wrong:
        said = f"must be exit codes from 1 to {LAST_EXIT_CODE}, not {wrong[0]!r}"
        yield Problem(joined(ANNOTATIONS, RETRYABLE), said, "write for example 1,42")
    written = job.annotations.get(CHECKPOINT_SECONDS, "0")
    if not _is_time_to_save(written):
        said = f"must be seconds from 0 to {LONGEST_SAVING}, not {written!r}"
        yield Problem(joined(ANNOTATIONS, CHECKPOINT_SECONDS), said, 'write for example "30"')


def in_words_that_count(problem: Problem) -> Problem:
    """`yes` without quotes is YAML's true; with quotes around it, it would be as wrong."""
    meant = next((words for name, words in MEANINGS.items() if problem.path == joined(ANNOTATIONS, name)), ())
    return replace(problem, remedy=f"write {' or '.join(map(_quoted, meant))}, or remove it") if meant else problem


def annotations_are_spelled(job: TrainingJob) -> Iterator[Problem]:
    """A caution: one of later versions of Tarragon, or of somebody's own, may be meant."""
    for name in job.annotations:
        group, _, own = name.partition("/")
        if f"{group}/" == OURS and name not in KNOWN and not own.endswith("-extra"):
            meant = nearest(own, (known.removeprefix(OURS) for known in KNOWN))
            if meant is not None:
                yield Problem(joined(ANNOTATIONS, name), "has no meaning", f"did you mean {OURS}{meant}?")


def _quoted(word: str) -> str:
    return f'"{word}"'


def _codes(job: TrainingJob) -> list[str]:
    written = job.annotations.get(RETRYABLE)
    return [] if written is None else [code.strip() for code in written.split(",")]


def _is_time_to_save(written: str) -> bool:
    is_number = written.isascii() and written.isdecimal() and len(written) < LONGEST_NUMBER
    return is_number and int(written) <= LONGEST_SAVING


def _is_exit_code(code: str) -> bool:
    return code.isascii() and code.isdecimal() and len(code) < LONGEST_NUMBER and 1 <= int(code) <= LAST_EXIT_CODE
