"""Converts a job's manifest to another generation of the API, and validates it before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.frameworks.registry import framework_of
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A converted manifest; unusable if there are problems. `source` is empty if its generation was not recognized."""

    source: str
    manifest: Manifest
    problems: Sequence[Problem] = ()
    losses: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()


def convert_manifest(framework: Framework, found: Manifest, target: str) -> Conversion:
    """Convert a manifest to the dialect with the name `target`."""
    decoded_source = decode_and_validate(framework, found)
    if decoded_source.dialect is None or decoded_source.problems:
        return Conversion(source="", manifest={}, problems=decoded_source.problems)
    source = decoded_source.dialect.name
    if framework.conversion is None or target not in framework.conversion.generations:
        problem = Problem("", f"{framework.kind}s can't be converted to {target}", _generations_of(framework))
        return Conversion(source=source, manifest={}, problems=[problem])
    conversion = framework.conversion.convert(found, source, target)
    decoded_target = decode_and_validate(_framework_of(conversion.manifest, framework), conversion.manifest)
    return Conversion(
        source=source,
        manifest=conversion.manifest,
        problems=[_target_problem(problem, target) for problem in _target_faults(decoded_target, target)],
        losses=[loss.problem for loss in conversion.losses],
        warnings=[
            *decoded_source.warnings,
            *(_kept_field(problem) for problem in decoded_source.unknown_fields),
        ],
    )


def _generations_of(framework: Framework) -> str:
    if framework.conversion is None:
        return f"its only generation is {framework.dialects[-1].name}"
    return f"its generations are {', '.join(framework.conversion.generations)}"


def _framework_of(manifest: Manifest, source: Framework) -> Framework:
    """The framework of a converted manifest, which may be another kind than its source."""
    return framework_of(manifest.get("apiVersion"), manifest.get("kind")) or source


def _target_faults(decoded_target: DecodedJob, target: str) -> Sequence[Problem]:
    if decoded_target.problems or decoded_target.dialect is None or decoded_target.dialect.name == target:
        return decoded_target.problems
    return [
        Problem(
            "",
            f"it can't be distinguished from a job of {decoded_target.dialect.name}",
            f"use {decoded_target.dialect.name} as the target",
        )
    ]


def _target_problem(problem: Problem, target: str) -> Problem:
    return Problem("", f"it can't be converted to {target}: {problem}")


def _kept_field(problem: Problem) -> Problem:
    return Problem(problem.path, f"{problem.message}, kept unchanged", problem.remedy)
