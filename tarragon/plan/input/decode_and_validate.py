"""Decodes and validates a manifest: the result is a job, or all its problems. Used by the command line and operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.dialect_detection import (
    dialect_of,
    is_recorded,
    recorded_generation,
    tells_generation,
    written_version,
)
from tarragon.frameworks.plugin import Dialect, Framework, Manifest, Rule
from tarragon.job.model import GENERATION_ANNOTATION, TrainingJob
from tarragon.job.tensorboard import with_tensorboard
from tarragon.kube.codec import format_time
from tarragon.kube.field_reader import join_path
from tarragon.kube.meta import CustomObject, Json, ManagedFieldsEntry

MAX_PROBLEMS = 8
MAX_PROBLEM_LENGTH = 300
_TAIL_LENGTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedJob:
    """The result of decoding and validating a manifest.

    `job` is None if there are problems. `dialect` is None if the generation annotation names an unknown generation.
    """

    job: TrainingJob | None
    dialect: Dialect | None
    problems: Sequence[Problem] = ()
    unknown_fields: Sequence[Problem] = ()
    """Unknown fields: the command line rejects them; the operator runs the job and reports them in a condition."""
    warnings: Sequence[Problem] = ()
    recognition_warnings: Sequence[Problem] = ()
    """Those warnings that are only known until the generation is on record."""
    tells_its_generation: bool = False
    """Whether the job is recognised as what it is by its spec alone."""
    partial_job: TrainingJob | None = None
    """The job decoded in spite of problems; only fields without problems may be used."""

    @property
    def all_problems(self) -> Sequence[Problem]:
        """All problems for which the command line rejects a manifest."""
        return [*self.problems, *self.unknown_fields]


def decode_and_validate(framework: Framework, found: Manifest | CustomObject) -> DecodedJob:
    """Decode and validate a manifest or object. Never raises, whatever its content."""
    manifest = manifest_of(found) if isinstance(found, CustomObject) else found
    dialect = dialect_of(framework, manifest)
    if isinstance(dialect, Problem):
        return DecodedJob(job=None, dialect=None, problems=(dialect,))
    if isinstance(found, CustomObject) and (fault := found.spec_error):
        return DecodedJob(job=None, dialect=dialect, problems=(Problem("spec", fault),))
    if manifest is found and (problems := list(_unpaired_surrogates("", found))):
        return DecodedJob(job=None, dialect=dialect, problems=tuple(problems))
    reading = dialect.decode(manifest)
    candidate = with_tensorboard(reading.job, framework.main_container) if reading.job is not None else None
    problems = list(_outermost(reading.problems))
    recognition: Sequence[Problem] = ()
    if not is_recorded(manifest):
        recognition = tuple(dialect.recognition_warnings(manifest, written_version(framework, manifest)))
    warnings = [*recognition, *reading.warnings]
    if candidate is not None:
        problems += _not_covered(_violations([*framework.rules, *dialect.rules], candidate), problems)
        warnings += _not_covered(_violations(framework.warning_rules, candidate), problems)
    return DecodedJob(
        job=None if problems else candidate,
        dialect=dialect,
        problems=tuple(dict.fromkeys(problems)),
        unknown_fields=tuple(dict.fromkeys(reading.unknown)),
        warnings=tuple(dict.fromkeys(warnings)),
        recognition_warnings=recognition,
        tells_its_generation=tells_generation(framework, manifest, dialect),
        partial_job=candidate,
    )


def join_problems(problems: Sequence[Problem]) -> str:
    """Join problems for a condition's message: at most MAX_PROBLEMS, each shortened."""
    shown = "; ".join(map(shorten_problem, problems[:MAX_PROBLEMS]))
    more = len(problems) - MAX_PROBLEMS
    return f"{shown}; and {more} more" if more > 0 else shown


def shorten_problem(problem: Problem) -> str:
    """Return a problem's text, shortened in the middle: a value may be very long; path and remedy are at the ends."""
    text = str(problem)
    return (
        text
        if len(text) <= MAX_PROBLEM_LENGTH
        else f"{text[: MAX_PROBLEM_LENGTH - _TAIL_LENGTH - 1]}…{text[-_TAIL_LENGTH:]}"
    )


def manifest_of(found: CustomObject) -> Manifest:
    """Return the object as a manifest, with the metadata that is needed to recognize its generation."""
    metadata = found.metadata
    fields: dict[str, Json] = {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }
    if metadata.creation_timestamp is not None:
        fields["creationTimestamp"] = format_time(metadata.creation_timestamp)
    manifest = {"apiVersion": found.api_version, "kind": found.kind, "metadata": fields, "spec": found.spec}
    recorded = recorded_generation(found)
    if recorded is None:
        fields["managedFields"] = [_managed_fields_entry(entry) for entry in metadata.managed_fields]
    elif GENERATION_ANNOTATION not in metadata.annotations:
        manifest["status"] = {"tarragon": {"generation": recorded}}
    return manifest


def _managed_fields_entry(entry: ManagedFieldsEntry) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "fieldsV1": entry.fields_v1,
    }
    return fields if entry.time is None else {**fields, "time": format_time(entry.time)}


def _unpaired_surrogates(path: str, value: Json) -> Iterator[Problem]:
    """Report strings with unpaired surrogates. YAML and JSON can escape them, but no API server accepts them."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                yield Problem(path, f"{value!r} has half a surrogate pair", "write the character itself")
        case dict():
            for name, child in value.items():
                faults = list(_unpaired_surrogates(path, name))
                yield from faults or _unpaired_surrogates(join_path(path, str(name)), child)
        case list():
            for index, child in enumerate(value):
                yield from _unpaired_surrogates(f"{path}[{index}]", child)
        case _:
            return


def _violations(rules: Iterable[Rule], job: TrainingJob) -> Iterator[Problem]:
    for rule in rules:
        yield from rule(job)


def _outermost(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Drop problems inside a value that has a problem itself, such as missing fields of a value of the wrong type."""
    paths = {problem.path for problem in problems if not problem.is_of_name}
    for problem in problems:
        if not any(_is_below(problem.path, path) for path in paths):
            yield problem


def _not_covered(found: Iterable[Problem], reported: Sequence[Problem]) -> list[Problem]:
    """Return the problems that do not follow from reported ones, by their paths."""
    paths = {problem.path for problem in reported if not problem.is_of_name}
    return [
        problem
        for problem in found
        if problem.path not in paths and not any(_is_below(problem.path, path) for path in paths)
    ]


def _is_below(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))
