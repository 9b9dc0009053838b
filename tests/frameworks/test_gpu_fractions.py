"""A share of a GPU is refused in every spelling and at every place where KubeShare or DRAGON reads one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frameworks.jobs import taken as read
from tests.frameworks.jobs import template, tfjob
from tests.frameworks.listed_jobs import item, listed

Json = dict[str, Any]

WORKER = "spec.tfReplicaSpecs.Worker.template"
IN_CONTAINER = f"{WORKER}.spec.containers[0]"
WORDS = "fractions of GPUs are not supported yet; ask for whole GPUs with nvidia.com/gpu, or remove it"
KEYS = (
    "kubeshare/gpu_request",
    "kubeshare/gpu_limit",
    "kubeshare/gpu_mem",
    "kubeshare/GPUID",
    "kubeshare/sched_affinity",
    "sharedgpu/gpu_request",
    "sharedgpu/gpu_limit",
    "sharedgpu/gpu_mem",
    "sharedgpu/gpu_model",
    "sharedgpu/priority",
    "sharedgpu/group_name",
)
SWITCH = "DRAGON_KUBESHARE"


def problem_texts(manifest: Json) -> list[str]:
    return [str(problem) for problem in read(manifest).unsupported_features]


def at(path: str, key: str) -> str:
    return f"{path}.{key}: {WORDS}" if key == SWITCH else f'{path}["{key}"]: {WORDS}'


@pytest.mark.parametrize("key", [*KEYS, SWITCH])
@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_a_mark_on_a_job_is_refused(field: str, key: str) -> None:
    job = tfjob()
    job["metadata"][field] = {key: "1", "team": "vision"}

    assert problem_texts(job) == [at(f"metadata.{field}", key)]


@pytest.mark.parametrize("key", [*KEYS, SWITCH])
@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_a_mark_on_a_pod_template_is_refused(field: str, key: str) -> None:
    job = tfjob({"PS": 1, "Worker": {"template": {"metadata": {field: {key: "1"}}, **template()}}})

    assert problem_texts(job) == [at(f"{WORKER}.metadata.{field}", key)]


@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize("amount", ["1", "0.5"])
def test_a_resource_of_that_name_is_refused_once_whatever_its_amount(kind: str, amount: str) -> None:
    job = tfjob({"Worker": {"template": template(resources={kind: {"kubeshare/gpu": amount}})}})

    assert problem_texts(job) == [at(f"{IN_CONTAINER}.resources.{kind}", "kubeshare/gpu")]
    assert [problem.message for problem in read(job).all_problems] == ["fractions of GPUs are not supported yet"]


@pytest.mark.parametrize("variable", [{"value": "true"}, {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_the_switch_of_dragon_in_the_environment_of_a_container_is_refused(kind: str, variable: Json) -> None:
    pod = template()
    marked = {"name": "other", "image": "i", "env": [{"name": "A", "value": "b"}, {"name": SWITCH, **variable}]}
    pod["spec"][kind] = [*pod["spec"].get(kind, []), marked]
    index = len(pod["spec"][kind]) - 1

    assert problem_texts(tfjob({"Worker": {"template": pod}})) == [f"{WORKER}.spec.{kind}[{index}].env[1]: {WORDS}"]


@pytest.mark.parametrize("value", ["false", "False", ""])
def test_a_switch_that_is_off_asks_for_nothing(value: str) -> None:
    job = tfjob({"Worker": {"template": template(env=[{"name": SWITCH, "value": value}, {"name": SWITCH + "_X"}])}})
    job["metadata"]["annotations"] = {SWITCH: value}

    assert problem_texts(job) == []


@pytest.mark.parametrize("key", ["kubeshare", "mykubeshare/gpu_request", "kubeshare.example.org/x", "gpu_request"])
def test_what_only_resembles_such_a_mark_is_left_alone(key: str) -> None:
    job = tfjob({"Worker": {"template": {"metadata": {"labels": {key: "1"}}, **template()}}})
    job["metadata"] |= {"annotations": {key: "1"}, "labels": {key: "1"}}

    assert (problem_texts(job), read(job).problems) == ([], ())


def test_a_number_without_quotes_is_told_as_a_share_not_as_a_slip() -> None:
    """Else a user adds the quotes, only to be refused then."""
    job = tfjob()
    job["metadata"]["annotations"] = {"kubeshare/gpu_request": 0.5}

    assert [str(problem) for problem in read(job).all_problems] == [at("metadata.annotations", "kubeshare/gpu_request")]
    assert read(job).job is None


@pytest.mark.parametrize("version", [("mlkube.io/v1beta1", "TfJob"), ("kubeflow.org/v1alpha1", "TFJob")])
def test_a_list_of_replicas_is_looked_through_as_well(version: tuple[str, str]) -> None:
    marked = {"metadata": {"annotations": {"kubeshare/gpu_request": "0.5"}}, **template()}
    job = {**listed(item("MASTER", template=marked)), "apiVersion": version[0], "kind": version[1]}

    assert problem_texts(job) == [at("spec.replicaSpecs[0].template.metadata.annotations", "kubeshare/gpu_request")]


Place = tuple[Sequence[str | int], str]
"""The map that a mark is put into, and its path for a Problem."""
TYPES = ("Chief", "PS", "Worker", "Evaluator")
PLACES: Sequence[Place] = [
    *((("metadata", field), f"metadata.{field}") for field in ("annotations", "labels")),
    *(
        (
            ("spec", "tfReplicaSpecs", kind, "template", "metadata", field),
            f"spec.tfReplicaSpecs.{kind}.template.metadata.{field}",
        )
        for kind in TYPES
        for field in ("annotations", "labels")
    ),
    *(
        (
            ("spec", "tfReplicaSpecs", kind, "template", "spec", "containers", 0, "resources", field),
            f"spec.tfReplicaSpecs.{kind}.template.spec.containers[0].resources.{field}",
        )
        for kind in TYPES
        for field in ("limits", "requests")
    ),
]
NAMES = st.sampled_from(("kubeshare", "sharedgpu")).flatmap(
    lambda domain: st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?", fullmatch=True).map(
        lambda name: f"{domain}/{name}"
    )
)
MARKS = st.lists(st.tuples(st.sampled_from(range(len(PLACES))), NAMES), max_size=12, unique=True)


def put(job: Json, steps: Sequence[str | int], key: str) -> None:
    place: Any = job
    for step in steps:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    place[key] = "1"


def whole() -> Json:
    return tfjob({kind: {"template": copy.deepcopy(template())} for kind in TYPES})


@given(marks=MARKS)
def test_every_mark_gives_exactly_one_problem_with_its_path(marks: list[tuple[int, str]]) -> None:
    job = whole()
    for place, key in marks:
        put(job, PLACES[place][0], key)

    found = [(problem.path, problem.remedy) for problem in read(job).all_problems]

    remedy = "ask for whole GPUs with nvidia.com/gpu, or remove it"
    assert sorted(found) == sorted((f'{PLACES[place][1]}["{key}"]', remedy) for place, key in marks)


@given(marks=MARKS)
def test_without_its_marks_the_job_is_the_same_one(marks: list[tuple[int, str]]) -> None:
    """They are no part of how it is read: only of whether it may start."""
    job = whole()
    for place, key in marks:
        put(job, PLACES[place][0], key)

    there = read(job)

    assert there.problems == ()
    assert there.job is not None
    assert there.job.requested_size() == read(whole()).job.requested_size()  # type: ignore[union-attr]
