"""A job's manifest in another generation of the API, or why it can't be that: checked on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.catalog import FRAMEWORKS, framework_of
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.frameworks.tensorflow.conversion.converting import convert
from tarragon.plan.input.decode_and_validate import Intake, intake


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """With problems there is no manifest, or it is of no use. `source` is empty where nobody knows its generation."""

    source: str
    manifest: Manifest
    problems: Sequence[Problem] = ()
    losses: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()


def converted(framework: Framework, found: Manifest, target: str) -> Conversion:
    """`target` is the name of a dialect."""
    taken = intake(framework, found)
    if taken.dialect is None or taken.problems:
        return Conversion(source="", manifest={}, problems=taken.problems)
    source = taken.dialect.name
    made = convert(found, source, target)
    after = intake(_framework(made.manifest), made.manifest)
    return Conversion(
        source=source,
        manifest=made.manifest,
        problems=[_of_target(problem, target) for problem in _faults(after, target)],
        losses=[loss.problem for loss in made.losses],
        warnings=[*taken.warnings, *taken.unsupported, *(_carried(problem) for problem in taken.unknown)],
    )


def _framework(manifest: Manifest) -> Framework:
    return framework_of(manifest.get("apiVersion"), manifest.get("kind")) or FRAMEWORKS[0]


def _faults(after: Intake, target: str) -> Sequence[Problem]:
    if after.problems or after.dialect is None or after.dialect.name == target:
        return after.problems
    return [
        Problem(
            "", f"nothing in it tells it from a job of {after.dialect.name}", f"name that one: {after.dialect.name}"
        )
    ]


def _of_target(problem: Problem, target: str) -> Problem:
    return Problem("", f"it can't be a job of {target}: {problem}")


def _carried(problem: Problem) -> Problem:
    return Problem(problem.path, f"{problem.message}, left as it is", problem.remedy)
