"""Properties of the conversion of MPIJobs, over jobs of every generation."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarragon.frameworks.mpi.conversion.convert import convert
from tarragon.frameworks.mpi.framework import MPI
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.conversion import convert_manifest
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.conversion.manifests import Manifest
from tests.conversion.mpijobs import NAMES, mpijobs
from tests.conversion.test_there_and_back import is_annotated

PAIRS = [(source, target) for source in NAMES for target in NAMES]
by_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda name: name.rpartition("/")[2])
some = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.parametrize("name", NAMES)
@some
@given(data=st.data())
def test_generated_jobs_are_valid(name: str, data: st.DataObject) -> None:
    found = decode_and_validate(MPI, data.draw(mpijobs(name)))

    assert [str(problem) for problem in (*found.problems, *found.unknown_fields)] == []
    assert found.dialect is not None
    assert found.dialect.name == name


@by_pair
@some
@given(data=st.data())
def test_a_job_that_is_converted_and_converted_back_is_the_same(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(mpijobs(source))
    before = copy.deepcopy(manifest)

    there = convert(manifest, source, target)
    back = convert(there.manifest, target, source)

    assert back.manifest == manifest == before
    if is_annotated(there.manifest):
        assert back.losses == ()


@by_pair
@some
@given(data=st.data())
def test_a_converted_job_is_a_valid_job_of_the_target_generation(source: str, target: str, data: st.DataObject) -> None:
    made = convert_manifest(MPI, data.draw(mpijobs(source)), target)
    found = decode_and_validate(MPI, made.manifest)

    assert [str(problem) for problem in (*made.problems, *found.unknown_fields)] == []
    assert found.dialect is not None
    assert found.dialect.name == target


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), over=st.sampled_from(NAMES), pair=st.sampled_from(PAIRS))
def test_a_conversion_through_another_generation_changes_nothing(
    data: st.DataObject, over: str, pair: tuple[str, str]
) -> None:
    source, target = pair
    manifest = data.draw(mpijobs(source))

    straight = convert(manifest, source, target)
    between = convert(manifest, source, over).manifest
    detour = convert(between, over, target)

    assert detour.manifest["spec"] == straight.manifest["spec"]
    if is_annotated(between):
        assert detour.losses == straight.losses
        assert kept(detour.manifest) == kept(straight.manifest)


@by_pair
@some
@given(data=st.data())
def test_edits_between_two_conversions_are_restored_with_everything_else(
    source: str, target: str, data: st.DataObject
) -> None:
    manifest = data.draw(mpijobs(source))
    there = copy.deepcopy(dict(convert(manifest, source, target).manifest))
    expected = copy.deepcopy(manifest)

    edited = [*templates(there).values(), *(templates(expected)[role] for role in roles_of(there, expected))]
    for template in edited:
        template["spec"]["containers"][0]["image"] = "edited"
    for each in (there, expected):
        each["metadata"]["labels"] = {"edited": "yes"}

    assert convert(there, target, source).manifest == expected


def kept(manifest: JsonObject) -> list[Any]:
    """The content of the annotations, in which the order of fields may differ."""
    notes = manifest["metadata"].get("annotations", {})
    return [json.loads(text) for name, text in sorted(notes.items()) if name.endswith("-extra")]


def templates(manifest: Manifest) -> dict[str, Any]:
    """The templates by role; a template of all pods has the role of none."""
    spec: Mapping[str, Any] = manifest["spec"]
    if "template" in spec:
        return {"": spec["template"]}
    return {kind.lower(): group["template"] for kind, group in spec["mpiReplicaSpecs"].items()}


def roles_of(there: Manifest, original: Manifest) -> set[str]:
    """The roles in the original of the templates that there are."""
    if "template" in original["spec"]:
        return {""}
    if "template" not in there["spec"]:
        return set(templates(there))
    return {"launcher" if there["spec"].get("replicas") == 0 else "worker"}
