"""Jobs of every kind may request shares of GPUs; what is wrong with a request is reported with its path."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.gpu_shares import is_gpu_share_name
from tarragon.kube.scheduling.gpu_shares import GpuShare, share_of_template
from tests.conftest import ROOT
from tests.frameworks.jobs import job_of, problems, template, tfjob, warnings
from tests.frameworks.jobs import taken as read
from tests.frameworks.listed_jobs import item, listed

Json = dict[str, Any]

SEED = ROOT / "tests" / "data" / "manifests" / "002-dragon-kubeshare.yaml"
WORKER = "spec.tfReplicaSpecs.Worker.template"
IN_CONTAINER = f"{WORKER}.spec.containers[0]"
SWITCH = "DRAGON_KUBESHARE"
SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}
MISSING_LIMIT = 'is missing; write for example "0.5"'


def shared(marks: Json, field: str = "annotations", **container: Any) -> Json:
    return {"metadata": {field: marks}, **template(**container)}


def with_worker(found: Json) -> Json:
    return tfjob({"PS": 1, "Worker": {"template": found}})


def test_the_manifest_of_dragon_is_valid_and_its_workers_request_half_a_gpu() -> None:
    found = read(yaml.safe_load(SEED.read_text()))

    assert (found.all_problems, found.warnings) == ([], ())
    assert found.job is not None
    assert [share_of_template(group.template) for group in found.job.replica_specs] == [
        None,
        GpuShare(request=500, limit=1000, memory=3189243904),
    ]


@pytest.mark.parametrize(
    "found",
    [
        shared(SHARE),
        shared({"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0"}, "labels"),
        template(resources={"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}}),
        template(resources={"limits": {"nvidia.com/gpumem-percentage": "50"}}),
    ],
)
def test_a_share_in_each_of_its_forms_is_valid(found: Json) -> None:
    job = job_of(with_worker(found))

    assert share_of_template(job.replica_specs[-1].template) is not None
    assert warnings(with_worker(found)) == []


MPI = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "dist"}}
JAX = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "dist"}}


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (
            {**MPI, "spec": {"mpiReplicaSpecs": {"Launcher": {"template": template()}, "Worker": {}}}},
            "spec.mpiReplicaSpecs.Worker.template",
        ),
        ({**JAX, "spec": {"jaxReplicaSpecs": {"Worker": {}}}}, "spec.jaxReplicaSpecs.Worker.template"),
    ],
)
def test_the_workers_of_other_kinds_may_request_a_share_too(manifest: Json, path: str) -> None:
    found = copy.deepcopy(manifest)
    (specs,) = found["spec"].values()
    specs["Worker"] = {"replicas": 1, "template": shared({"kubeshare/gpu_request": "0.5"}, name="jax")}

    assert problems(found) == [f'{path}.metadata.annotations["kubeshare/gpu_limit"]: {MISSING_LIMIT}']
    specs["Worker"]["template"]["metadata"]["annotations"] = SHARE
    assert problems(found) == []


@pytest.mark.parametrize("version", [("mlkube.io/v1beta1", "TfJob"), ("kubeflow.org/v1alpha1", "TFJob")])
def test_a_list_of_replicas_is_looked_through_as_well(version: tuple[str, str]) -> None:
    found = listed(item("MASTER", template=shared({"kubeshare/gpu_request": "0.5"})))
    job = {**found, "apiVersion": version[0], "kind": version[1]}

    path = 'spec.replicaSpecs[0].template.metadata.annotations["kubeshare/gpu_limit"]'
    assert problems(job) == [f"{path}: {MISSING_LIMIT}"]


def test_a_number_without_quotes_is_reported_once() -> None:
    job = with_worker(shared({"kubeshare/gpu_request": 0.5, "kubeshare/gpu_limit": "1.0"}))

    path = f'{WORKER}.metadata.annotations["kubeshare/gpu_request"]'
    assert problems(job) == [f'{path}: must be text, not 0.5; write it in quotes: "0.5"']


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [
        (
            "kubeshare/gpu_request",
            "0.5",
            "is not a resource; write kubeshare/gpu_request as an annotation of the pod template",
        ),
        ("nvidia.com/gpucores", 0.5, "must be a whole number, not 0.5"),
        ("nvidia.com/gpumem", "x", 'must be a quantity such as 500m, 2 or 8Gi, not the text "x"'),
        ("nvidia.com/gpumem", -1, "must be a quantity such as 500m, 2 or 8Gi, not -1"),
    ],
)
def test_a_resource_is_reported_once(name: str, amount: str | float, words: str) -> None:
    job = with_worker(template(resources={"limits": {name: amount}}))

    assert problems(job) == [f'{IN_CONTAINER}.resources.limits["{name}"]: {words}']


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize(
    ("name", "belongs_to"), [("kubeshare/gpu_request", "annotations"), ("sharedgpu/gpu_limit", "labels")]
)
def test_a_mark_on_the_job_belongs_to_the_template(field: str, name: str, belongs_to: str) -> None:
    job = tfjob()
    job["metadata"][field] = {name: "0.5", "team": "vision"}

    message = "has no effect on a job, only on a pod template"
    assert problems(job) == [
        f'metadata.{field}["{name}"]: {message}; move it to metadata.{belongs_to} of the pod template'
    ]


@pytest.mark.parametrize("value", ["true", "false", "True"])
def test_the_switch_of_dragon_means_nothing(value: str) -> None:
    job = with_worker(template(env=[{"name": SWITCH, "value": "maybe"}]))
    job["metadata"]["annotations"] = {SWITCH: value}

    assert (problems(job), warnings(job)) == ([], [])


@pytest.mark.parametrize("value", ["", "yes"])
def test_another_value_of_the_switch_is_a_mistake(value: str) -> None:
    job = tfjob()
    job["metadata"]["annotations"] = {SWITCH: value}

    assert problems(job) == [
        f'metadata.annotations.{SWITCH}: must be "true" or "false", not {value!r}; remove it, because it has no effect'
    ]


def test_settings_without_effect_are_warned_of() -> None:
    job = with_worker(shared({"sharedgpu/gpu_limit": "1", "sharedgpu/group_name": "a"}, "labels"))

    assert problems(job) == []
    path, reason = f'{WORKER}.metadata.labels["sharedgpu/group_name"]', "the job itself is scheduled as a gang"
    assert warnings(job) == [f"{path}: is ignored: {reason}; remove it"]


@pytest.mark.parametrize("key", ["kubeshare", "mykubeshare/gpu_request", "kubeshare.example.org/x", "gpu_request"])
def test_what_only_resembles_such_a_mark_is_left_alone(key: str) -> None:
    job = with_worker(shared({key: "1"}, "labels"))
    job["metadata"] |= {"annotations": {key: "1"}, "labels": {key: "1"}}

    assert (problems(job), warnings(job)) == ([], [])
    assert not is_gpu_share_name(key)


TYPES = ("Chief", "PS", "Worker", "Evaluator")
IN_TEMPLATE = (("metadata", "annotations"), ("metadata", "labels"), ("spec", "containers", 0, "resources", "limits"))
PLACES: Sequence[Sequence[str | int]] = [
    ("metadata", "annotations"),
    ("metadata", "labels"),
    *(("spec", "tfReplicaSpecs", kind, "template", *steps) for kind in TYPES for steps in IN_TEMPLATE),
]
NAMES = st.sampled_from(
    ["kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/x", "sharedgpu/gpu_limit", "nvidia.com/gpumem"]
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(["0", "0.5", "1", "2", "x", "", 1, 0.5, None, [], {}])
MARKS = st.lists(st.tuples(st.sampled_from(range(len(PLACES))), NAMES, VALUES), max_size=12)


def put(job: Json, steps: Sequence[str | int], name: str, value: Any) -> None:
    place: Any = job
    for step in steps:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    place[name] = value


def job_of_all_types() -> Json:
    return tfjob({kind: {"template": copy.deepcopy(template())} for kind in TYPES})


@given(marks=MARKS)
def test_marks_anywhere_decide_only_whether_the_job_is_valid(marks: list[tuple[int, str, Any]]) -> None:
    job = job_of_all_types()
    for place, name, value in marks:
        put(job, PLACES[place], name, value)

    found = read(job)

    assert (found.job is None) == bool(found.problems)
    assert found.partial_job is not None
    assert found.partial_job.requested_size() == job_of(job_of_all_types()).requested_size()


def test_constraints_on_who_shares_the_gpu_are_accepted() -> None:
    constraints = {"GPUID": "abcde", "sched_affinity": "a", "sched_anti-affinity": "b", "sched_exclusion": "c"}

    assert not problems(
        with_worker(shared({**SHARE, **{f"kubeshare/{name}": each for name, each in constraints.items()}}))
    )
