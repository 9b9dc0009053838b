"""The reference says of each field what the code says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.field_descriptions import CONDITION_DESCRIPTIONS
from tarragon.frameworks.mpi.dialects import DIALECT_BY_NAME
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.field_descriptions import DESCRIPTIONS, RECOGNITION_DESCRIPTIONS
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.job import conditions
from tarragon.job.model import TrainingJob
from tests.frameworks.mpi_jobs import mpijob, short_job

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "mpijob.md"
MPI_VERSIONS = ("v1alpha1", "v1alpha2", "v1", "v2beta1")
SCALARS: Mapping[str, Callable[[str], Any]] = {"integer from 0": int, "integer from 1": int, "boolean": "true".__eq__}
"""How a default is read, by the type of its field; others are text."""
IN_WORDS = {"never", "no limit", "not elastic", "the first container"}
"""Defaults that no value of the field stands for."""


def described(found: dict[str, Any]) -> Iterator[str]:
    """What is written beside each field."""
    yield found["description"]
    for name, field in found.get("properties", {}).items():
        if name != "metadata":  # the server's own
            yield from described(field)
    for below in (found.get("items"), found.get("additionalProperties")):
        if isinstance(below, dict) and "properties" in below:
            yield from described(below)


def test_every_field_of_the_schema_has_a_meaning_and_every_meaning_a_field() -> None:
    assert set(described(schema())) == set(DESCRIPTIONS.values())


def test_every_generation_is_introduced() -> None:
    assert RECOGNITION_DESCRIPTIONS.keys() == GENERATIONS.keys()


def test_every_condition_is_explained() -> None:
    reasons = {conditions.RESUMED, conditions.INVALID, *conditions.LIMIT_EXCEEDED_REASONS}
    named = {value for name, value in vars(conditions).items() if name.isupper() and isinstance(value, str)}

    assert CONDITION_DESCRIPTIONS.keys() == named - reasons


@pytest.mark.parametrize("kind", ["mpijob", "jaxjob"])
def test_only_tfjobs_have_a_chief(kind: str) -> None:
    assert "chief" not in PAGE.with_name(f"{kind}.md").read_text().lower()


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the table below a heading of the page."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    for line in [line for line in section.splitlines() if line.startswith("|")][2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def of_version(default: str, version: str) -> str:
    """The default in one version: `6: v1alpha1, v2beta1; no limit: v1`. No versions means all."""
    choices = [choice.partition(": ") for choice in default.split("; ")]
    return next((value for value, _, names in choices if not names or version in names.split(", ")), "")


def defaults(version: str) -> Iterator[tuple[list[str], str | int]]:
    """The paths of the fields that this version has, and their defaults, as the page says."""
    taken = {
        field: dict(zip(MPI_VERSIONS, cells, strict=True))[version] for field, *cells in rows("Fields by generation")
    }
    for field, form, default, _ in rows("Fields of spec"):
        value = of_version(default, version)
        if not value or value in IN_WORDS or taken[field] != "yes":
            continue
        scalar = SCALARS.get(form, str)
        for kind in ("Launcher", "Worker") if "*" in field else ("",):
            found = re.search(rf"\b{kind} (\w+)", value) if kind else None
            yield field.replace("*", kind).split("."), scalar(found[1] if found else value.strip("`"))


def shortest(version: str, workers: int | None) -> dict[str, Any]:
    if version == "v1alpha1":
        return short_job(replicas=workers)
    return mpijob(f"kubeflow.org/{version}", specs={"Worker": {"replicas": workers}})


def read(manifest: dict[str, Any], version: str) -> TrainingJob | None:
    found = DIALECT_BY_NAME[f"kubeflow.org/{version}"].decode(manifest)
    assert not [*found.problems, *found.unknown]
    return found.job


@pytest.mark.parametrize("version", MPI_VERSIONS)
def test_an_mpijob_means_the_same_with_any_default_of_the_reference_written_out(version: str) -> None:
    written_out = 0
    for path, value in defaults(version):
        if version == "v1alpha1" and "mpiReplicaSpecs" in path:
            continue  # there `kubectl scale` writes it, to override the template's number
        workers = None if path[-1] == "replicas" else 2
        manifest = shortest(version, workers)
        at = manifest["spec"]
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = value

        assert read(manifest, version) == read(shortest(version, workers), version), path
        written_out += 1
    assert written_out >= 8
