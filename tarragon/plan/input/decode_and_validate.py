"""What a manifest means: a valid job, or everything that is wrong with it. Command line and operator both ask here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Dialect, Framework, Manifest, Rule
from tarragon.frameworks.recognition import dialect_of
from tarragon.job.model import GENERATION_ANNOTATION, TrainingJob
from tarragon.job.tensorboard import with_tensorboard
from tarragon.kube.codec import timestamp
from tarragon.kube.meta import CustomObject, Json, ManagedField
from tarragon.kube.reader import joined

MOST_PROBLEMS = 8
LONGEST_PROBLEM = 300
_END = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """With problems there is no job. Without a dialect the job's mark is of no generation that we know."""

    job: TrainingJob | None
    dialect: Dialect | None
    problems: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Fields that nobody knows: the command line refuses them, the operator runs the job and says so."""
    unsupported: Sequence[Problem] = ()
    """What Tarragon can't do yet: the command line refuses it, the operator starts no job with it."""
    warnings: Sequence[Problem] = ()
    guess: TrainingJob | None = None
    """What a job with problems might have been: good for fields that have none."""

    @property
    def refusals(self) -> Sequence[Problem]:
        """Problems, and what is not supported yet. A value that has both has the second one only: mending the first
        would not help.
        """
        paths = {problem.path for problem in self.unsupported}
        return [*(problem for problem in self.problems if problem.path not in paths), *self.unsupported]

    @property
    def all_problems(self) -> Sequence[Problem]:
        """All for which the command line refuses a manifest."""
        return [*self.refusals, *self.unknown]


def intake(framework: Framework, found: Manifest | CustomObject) -> Intake:
    """Never raises, whatever was written."""
    manifest = manifest_of(found) if isinstance(found, CustomObject) else found
    dialect = dialect_of(framework, manifest)
    if isinstance(dialect, Problem):
        return Intake(job=None, dialect=None, problems=(dialect,))
    if isinstance(found, CustomObject) and (fault := found.spec_fault):
        return Intake(job=None, dialect=dialect, problems=(Problem("spec", fault),))
    if manifest is found and (problems := list(_half_pairs("", found))):
        return Intake(job=None, dialect=dialect, problems=tuple(problems))
    reading = dialect.read(manifest)
    guess = with_tensorboard(reading.job, framework.main_container) if reading.job is not None else None
    problems = list(_outermost(reading.problems))
    warnings = list(reading.warnings)
    unsupported: Sequence[Problem] = ()
    if guess is not None:
        problems += _beyond(_asked([*framework.rules, *dialect.rules], guess), problems)
        warnings += _beyond(_asked(framework.cautions, guess), problems)
        unsupported = tuple(_asked(framework.unsupported, guess))
    return Intake(
        job=None if problems else guess,
        dialect=dialect,
        problems=tuple(dict.fromkeys(problems)),
        unknown=tuple(dict.fromkeys(reading.unknown)),
        unsupported=unsupported,
        warnings=tuple(dict.fromkeys(warnings)),
        guess=guess,
    )


def words(problems: Sequence[Problem]) -> str:
    """For a condition, which is not to be longer than people read."""
    shown = "; ".join(map(brief, problems[:MOST_PROBLEMS]))
    more = len(problems) - MOST_PROBLEMS
    return f"{shown}; and {more} more" if more > 0 else shown


def brief(problem: Problem) -> str:
    """A value may be as long as a book: its middle is left out, not the path before it or the remedy after it."""
    text = str(problem)
    return text if len(text) <= LONGEST_PROBLEM else f"{text[: LONGEST_PROBLEM - _END - 1]}…{text[-_END:]}"


def manifest_of(found: CustomObject) -> Manifest:
    """The object as its user could have written it, with what recognition needs of its metadata."""
    metadata = found.metadata
    fields: dict[str, Json] = {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }
    if metadata.creation_timestamp is not None:
        fields["creationTimestamp"] = timestamp(metadata.creation_timestamp)
    if GENERATION_ANNOTATION not in metadata.annotations:
        fields["managedFields"] = [_managed(entry) for entry in metadata.managed_fields]
    return {"apiVersion": found.api_version, "kind": found.kind, "metadata": fields, "spec": found.spec}


def _managed(entry: ManagedField) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "fieldsV1": entry.fields_v1,
    }
    return fields if entry.time is None else {**fields, "time": timestamp(entry.time)}


def _half_pairs(path: str, value: Json) -> Iterator[Problem]:
    """Text that is no Unicode. YAML and JSON can escape it, and no API server takes it, nor gives it back."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                yield Problem(path, f"{value!r} has half a surrogate pair", "write the character itself")
        case dict():
            for name, child in value.items():
                faults = list(_half_pairs(path, name))
                yield from faults or _half_pairs(joined(path, str(name)), child)
        case list():
            for index, child in enumerate(value):
                yield from _half_pairs(f"{path}[{index}]", child)
        case _:
            return


def _asked(rules: Iterable[Rule], job: TrainingJob) -> Iterator[Problem]:
    for rule in rules:
        yield from rule(job)


def _outermost(problems: Sequence[Problem]) -> Iterator[Problem]:
    """A value of a wrong type has no parts that could be missing: only the fault of the whole is told."""
    paths = {problem.path for problem in problems}
    for problem in problems:
        if not any(_is_below(problem.path, path) for path in paths):
            yield problem


def _beyond(found: Iterable[Problem], told: Sequence[Problem]) -> list[Problem]:
    """Those that do not follow from what was told already."""
    paths = {problem.path for problem in told}
    return [
        problem
        for problem in found
        if problem.path not in paths and not any(_is_below(problem.path, path) for path in paths)
    ]


def _is_below(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))
