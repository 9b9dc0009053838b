"""Properties of conversion, over jobs of every generation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tarragon.frameworks.registry import framework_of
from tarragon.frameworks.tensorflow.conversion.convert import convert
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.conversion import convert_manifest
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate
from tests.conversion.manifests import NAMES, Manifest, jobs_and_targets, tfjobs

PAIRS = [(source, target) for source in NAMES for target in NAMES]
by_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda name: name.rpartition("/")[2])
few = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def taken(manifest: Manifest) -> DecodedJob:
    framework = framework_of(manifest["apiVersion"], manifest["kind"])
    assert framework is not None
    return decode_and_validate(framework, manifest)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_generated_jobs_are_valid(name: str, data: st.DataObject) -> None:
    manifest = data.draw(tfjobs(name))

    found = taken(manifest)

    assert [str(problem) for problem in (*found.problems, *found.unknown_fields)] == []
    assert found.dialect is not None
    assert found.dialect.name == name


@by_pair
@few
@given(data=st.data())
def test_a_job_that_is_converted_and_converted_back_is_the_same(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(tfjobs(source))
    before = copy.deepcopy(manifest)

    there = convert(manifest, source, target)
    back = convert(there.manifest, target, source)

    assert back.manifest == manifest == before
    if is_annotated(there.manifest):
        assert back.losses == ()


@by_pair
@few
@given(data=st.data())
def test_a_converted_job_is_a_valid_job_of_the_target_generation(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(tfjobs(source))
    framework = framework_of(manifest["apiVersion"], manifest["kind"])
    assert framework is not None

    made = convert_manifest(framework, manifest, target)
    assume(not made.problems)
    found = taken(dict(made.manifest))

    assert found.dialect is not None
    assert found.dialect.name == target
    assert [str(problem) for problem in found.unknown_fields] == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(drawn=jobs_and_targets(), over=st.sampled_from(NAMES))
def test_a_conversion_through_another_generation_changes_nothing(drawn: tuple[Manifest, str, str], over: str) -> None:
    manifest, source, target = drawn

    straight = convert(manifest, source, target)
    between = convert(manifest, source, over).manifest
    detour = convert(between, over, target)

    assert detour.manifest["spec"] == straight.manifest["spec"]
    if is_annotated(between):
        assert detour == straight


@by_pair
@few
@given(data=st.data())
def test_edits_between_two_conversions_are_restored_with_everything_else(
    source: str, target: str, data: st.DataObject
) -> None:
    manifest = data.draw(tfjobs(source))
    there = copy.deepcopy(dict(convert(manifest, source, target).manifest))

    main_of(there, "worker" if has(there, "worker") else "chief")["image"] = "edited"
    there["metadata"]["labels"] = {"edited": "yes"}
    back = dict(convert(there, target, source).manifest)

    expected = copy.deepcopy(manifest)
    main_of(expected, "worker" if has(there, "worker") else "chief")["image"] = "edited"
    expected["metadata"]["labels"] = {"edited": "yes"}
    assert back == expected


def is_annotated(manifest: JsonObject) -> bool:
    """Whether the job has fields that its generation lacks, which conversion keeps in an annotation."""
    return any(name.endswith("-extra") for name in manifest["metadata"].get("annotations", ()))


def groups(manifest: Manifest) -> dict[str, Any]:
    spec = manifest["spec"]
    listed = spec.get("replicaSpecs") or spec.get("replica_specs")
    if listed is None:
        found = {word.lower(): group for word, group in spec["tfReplicaSpecs"].items()}
    else:
        found = {
            str(item.get("tfReplicaType") or item.get("tf_replica_type") or "MASTER").lower(): item for item in listed
        }
    return {"chief" if word == "master" else word: group for word, group in found.items()}


def _word(item: dict[str, Any]) -> str:
    return str(item.get("tfReplicaType") or item.get("tf_replica_type") or "MASTER")


def has(manifest: Manifest, role: str) -> bool:
    return role in groups(manifest)


def main_of(manifest: Manifest, role: str) -> dict[str, Any]:
    containers = groups(manifest)[role]["template"]["spec"]["containers"]
    found: dict[str, Any] = next(each for each in containers if each["name"] == "tensorflow")
    return found


def test_every_generation_has_a_dialect() -> None:
    assert set(GENERATIONS) == set(NAMES)
