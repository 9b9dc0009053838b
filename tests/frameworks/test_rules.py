from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.tensorflow.tf_config import MAX_LENGTH, tf_config_length
from tarragon.kube.codec import encode
from tarragon.kube.meta import Key
from tests.frameworks.jobs import CONTAINER, elastic, job_of, problems, template, tfjob, warnings, worker

WORKER = "spec.tfReplicaSpecs.Worker"
IN_WORKER = f"{WORKER}.template.spec"


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return worker(template={"spec": {"containers": list(containers), **spec}})


def main(**fields: Any) -> dict[str, Any]:
    return {**CONTAINER, **fields}


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    (tfjob({}), ["spec.tfReplicaSpecs: is empty; add a Worker or a Chief"]),
    (
        tfjob({"Worker": 0, "PS": 0}),
        ["spec.tfReplicaSpecs: has no replicas; set the replicas of a Worker or a Chief to 1 or more"],
    ),
    (tfjob({"PS": 2}), ["spec.tfReplicaSpecs: a job of PS alone never ends; add a Worker or a Chief"]),
    (
        tfjob({"PS": 1, "Evaluator": 1, "Worker": 0}),
        ["spec.tfReplicaSpecs: a job of PS and Evaluator alone never ends; add a Worker or a Chief"],
    ),
    (
        tfjob({"Chief": 2}),
        ["spec.tfReplicaSpecs.Chief.replicas: must be 1 or less, not 2; a job has one Chief"],
    ),
    (
        tfjob({"Chief": 1, "Master": 1}),
        ["spec.tfReplicaSpecs.Master: duplicates the Chief, as both mean the same; remove one of the two"],
    ),
    (
        tfjob({"Worker": 1, "Evaluator": 2}),
        ["spec.tfReplicaSpecs.Evaluator.replicas: must be 1 or less, not 2; a job has one Evaluator"],
    ),
    (tfjob({"Worker": pod()}), [f"{IN_WORKER}.containers: is empty; a replica needs a container"]),
    (
        tfjob({"Worker": worker(template={"spec": {}})}),
        [f"{IN_WORKER}.containers: is missing"],
    ),
    (
        tfjob({"Worker": pod({"name": "tensorflow"})}),
        [f"{IN_WORKER}.containers[0].image: is missing; say which image the container runs"],
    ),
    (
        tfjob({"Worker": pod(main(name="trainer"))}),
        [f"{IN_WORKER}.containers: no container is named tensorflow; name the one that trains tensorflow, not trainer"],
    ),
    (
        tfjob({"Worker": pod(main(), {"name": "tensorflow", "image": "x"})}),
        [f"{IN_WORKER}.containers[1].name: duplicate container name tensorflow"],
    ),
    (
        tfjob({"Worker": pod(main(), initContainers=[{"name": "tensorflow", "image": "x"}])}),
        [f"{IN_WORKER}.containers[0].name: duplicate container name tensorflow"],
    ),
    (
        tfjob({"Worker": pod(main(), {"name": "Side_car", "image": "x"})}),
        [
            (
                f'{IN_WORKER}.containers[1].name: "Side_car" may only contain lower-case letters, digits and dashes, '
                "and no dash at either end"
            )
        ],
    ),
    (
        tfjob({"Worker": pod(main(ports=[{"containerPort": 70000}]))}),
        [f"{IN_WORKER}.containers[0].ports[0].containerPort: must be from 1 to 65535, not 70000"],
    ),
    (
        tfjob({"Worker": pod(main(ports=[{"containerPort": 0, "name": "web"}]))}),
        [f"{IN_WORKER}.containers[0].ports[0].containerPort: must be from 1 to 65535, not 0"],
    ),
    (
        tfjob({"Worker": pod(main(ports=[{"containerPort": 1, "name": "TFJob_Port"}]))}),
        [
            (
                f"{IN_WORKER}.containers[0].ports[0].name: must be at most 15 lower-case letters, digits and single "
                'dashes, not "TFJob_Port"'
            )
        ],
    ),
    (
        tfjob({"Worker": pod(main(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]))}),
        [
            f"{IN_WORKER}.containers[0].ports[0].name: duplicate port name a",
            f"{IN_WORKER}.containers[0].ports[1].name: duplicate port name a",
        ],
    ),
    (
        tfjob({"Worker": pod(main(resources={"requests": {"cpu": 2}, "limits": {"cpu": "500m"}}))}),
        [f"{IN_WORKER}.containers[0].resources.requests.cpu: 2 exceeds the limit of 500m"],
    ),
    (
        tfjob({"Worker": pod(main(resources={"limits": {"nvidia.com/gpu": "0.5"}}))}),
        [f'{IN_WORKER}.containers[0].resources.limits["nvidia.com/gpu"]: must be a whole number, not 0.5'],
    ),
    (
        tfjob({"Worker": 1}, **elastic(3, 2)),
        ["spec.min-instances: must be 2 or less, as max-instances is, not 3"],
    ),
    (tfjob({"Worker": 1}, **elastic(0)), ["spec.min-instances: must be 1 or more, not 0"]),
    (
        tfjob({"Chief": 1}, **elastic(None, 2)),
        ["spec.tfReplicaSpecs: has no Worker, but max-instances counts workers; add a Worker"],
    ),
    (
        tfjob(name="9-lives"),
        [
            (
                "metadata.name: gives a replica the name 9-lives-worker-0, which must begin with a letter; "
                "write letters, digits and dashes, a letter first"
            )
        ],
    ),
    (
        tfjob(name="my.job"),
        [
            (
                "metadata.name: gives a replica the name my.job-worker-0, which may only contain lower-case letters, "
                "digits and dashes, and no dash at either end; write letters, digits and dashes, a letter first"
            )
        ],
    ),
]


@pytest.mark.parametrize(("manifest", "messages"), FAULTS, ids=[messages[0][:70] for _, messages in FAULTS])
def test_what_makes_no_sense_is_told_with_a_remedy(manifest: dict[str, Any], messages: list[str]) -> None:
    assert problems(manifest) == messages


def test_the_longest_derived_name_must_fit() -> None:
    fits = "a" * (63 - len("-worker-10"))

    assert problems(tfjob({"Worker": 11}, name=fits)) == []
    assert problems(tfjob({"Worker": 101}, name=fits)) == [
        (
            f"metadata.name: gives a replica the name {fits}-worker-100, which is 64 characters long, more than the "
            "maximum of 63; shorten it by 1"
        )
    ]


def test_the_longest_name_of_an_elastic_job_is_that_of_the_last_worker_that_may_come() -> None:
    name = "a" * (63 - len("-worker-9"))

    assert problems(tfjob({"Worker": 10}, name=name)) == []
    assert len(problems(tfjob({"Worker": 10}, name=name, **elastic(None, 11)))) == 1


def test_half_a_surrogate_pair_in_a_name_does_not_stop_the_measuring_of_tf_config() -> None:
    sparse = job_of(tfjob({"Worker": 6000}, enableDynamicWorker=True))
    job = replace(sparse, replica_specs=tuple(replace(group, may_fail=False) for group in sparse.replica_specs))

    assert tf_config_length(replace(job, key=Key("default", "\ud800"))) > MAX_LENGTH
    assert tf_config_length(replace(job, key=Key("\ud800", "a"))) > MAX_LENGTH


@pytest.mark.parametrize("where", ["name", "value", "key", "deep"])
def test_half_a_surrogate_pair_is_a_problem_of_its_field(where: str) -> None:
    job = tfjob({"Worker": 6000})
    container = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    match where:
        case "name":
            job["metadata"]["name"] = "a\ud800"
        case "value":
            container["image"] = "\udfff"
        case "key":
            job["metadata"]["labels"] = {"\ud800": "a"}
        case _:
            container["args"] = ["a", "\ud83d\ud83d\ude00"]

    (found,) = problems(job)
    assert "half a surrogate pair" in found
    assert encode(found)
    assert found.startswith(
        {
            "name": "metadata.name: ",
            "value": "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image: ",
            "key": "metadata.labels: ",
            "deep": "spec.tfReplicaSpecs.Worker.template.spec.containers[0].args[1]: ",
        }[where]
    )


def test_a_tf_config_that_linux_would_refuse_is_told_before_anything_starts() -> None:
    (found,) = problems(tfjob({"Worker": 6000}))

    assert found.startswith("spec.tfReplicaSpecs: gives a TF_CONFIG of ")
    assert "more than the 131061 that Linux allows" in found
    assert found.endswith("use fewer replicas, a shorter name, or enableDynamicWorker")
    assert problems(tfjob({"Worker": 6000}, enableDynamicWorker=True)) == []


@pytest.mark.parametrize(
    "manifest",
    [
        tfjob({"Chief": 1}),
        tfjob({"Chief": 1, "Worker": 0, "PS": 0}),
        tfjob({"Master": 1, "Evaluator": 1, "PS": 1, "Worker": 1}),
        tfjob({"Worker": pod(main(), {"name": "9-sidecar", "image": "x"})}),
        tfjob({"Worker": pod(main(ports=[{"containerPort": 80}, {"containerPort": 81}]))}),
        tfjob({"Worker": pod(main(resources={"limits": {"nvidia.com/gpu": 1, "cpu": "1.5"}}))}),
        tfjob({"Worker": worker(template=template(image="registry:5000/a/b:c@sha256:00"))}),
    ],
)
def test_what_makes_sense_passes(manifest: dict[str, Any]) -> None:
    assert problems(manifest) == []
    assert job_of(manifest).chief is not None


def test_who_asks_for_a_start_with_fewer_pods_is_told_that_this_scheduler_starts_jobs_whole() -> None:
    manifest = tfjob({"PS": 1, "Worker": 3})
    manifest["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 3}}
    said = "only has an effect with another scheduler: Tarragon starts a job with all of its replicas"
    remedy = "if the job can run with fewer workers, set spec.min-instances"
    assert warnings(manifest) == [f"spec.runPolicy.schedulingPolicy.minAvailable: {said}; {remedy}"]

    manifest["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 4}}
    assert warnings(manifest) == []
