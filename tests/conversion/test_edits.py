"""What somebody edits between there and back: edits win, and what they make impossible is told."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tarragon.frameworks.tensorflow.conversion.converting import convert
from tarragon.kube.codec import encode
from tests.conversion.richest import POLICIES
from tests.frameworks.jobs import template

V1ALPHA1, V1BETA2, V1 = "kubeflow.org/v1alpha1", "kubeflow.org/v1beta2", "kubeflow.org/v1"


def old() -> dict[str, Any]:
    """A master, two workers and a server that is left to the operator."""
    pod: Any = template()
    pod["spec"]["restartPolicy"] = "OnFailure"
    replicas = [
        {"template": pod},
        {"tfReplicaType": "WORKER", "replicas": 2, "template": copy.deepcopy(pod)},
        {"tfReplicaType": "PS"},
    ]
    return {
        "apiVersion": V1ALPHA1,
        "kind": "TFJob",
        "metadata": {"name": "old"},
        "spec": {"RuntimeId": "ab12", "replicaSpecs": replicas},
    }


def there(target: str = V1) -> Any:
    return copy.deepcopy(convert(old(), V1ALPHA1, target).manifest)


def topics(source: Any, name: str, target: str) -> list[str]:
    return [loss.topic for loss in convert(source, name, target).losses]


@pytest.mark.parametrize(("kind", "position"), [("Worker", 1), ("PS", 2)])
def test_replicas_that_were_taken_out_stay_out(kind: str, position: int) -> None:
    edited = there()
    del edited["spec"]["tfReplicaSpecs"][kind]

    expected = old()
    del expected["spec"]["replicaSpecs"][position]
    assert convert(edited, V1, V1ALPHA1).manifest == expected


def test_a_policy_that_was_changed_is_translated_and_the_rest_comes_back() -> None:
    edited = there()
    edited["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"

    back = convert(edited, V1, V1ALPHA1)

    expected = old()
    expected["spec"]["replicaSpecs"][1]["template"]["spec"]["restartPolicy"] = "Never"
    assert back.manifest["spec"]["RuntimeId"] == "ab12"
    assert back.manifest["spec"]["replicaSpecs"][1] == expected["spec"]["replicaSpecs"][1]
    assert "restarts" in [loss.topic for loss in back.losses]


def test_a_policy_that_was_added_goes_on_to_a_third_generation() -> None:
    edited = there(V1BETA2)
    edited["spec"]["activeDeadlineSeconds"] = 60

    assert convert(edited, V1BETA2, V1).manifest["spec"]["runPolicy"]["activeDeadlineSeconds"] == 60


def test_what_the_first_generation_can_t_say_is_told_on_the_way_home_and_goes_on_elsewhere() -> None:
    edited = there()
    edited["spec"]["enableDynamicWorker"] = True

    assert "enableDynamicWorker" in topics(edited, V1, V1ALPHA1)
    assert convert(edited, V1, "kubeflow.org/v1-dragon").manifest["spec"]["enableDynamicWorker"] is True


def test_a_template_that_was_written_for_the_standard_server_is_kept() -> None:
    edited = there()
    edited["spec"]["tfReplicaSpecs"]["PS"]["template"] = template(image="mine")

    _, _, servers = convert(edited, V1, V1ALPHA1).manifest["spec"]["replicaSpecs"]

    assert servers["template"]["spec"]["containers"][0]["image"] == "mine"


@pytest.mark.parametrize(
    "note",
    ["", "no JSON", "null", "[]", '{"in": "kubeflow.org/v1"}', '{"in": "kubeflow.org/v1", "changes": 3}', "[" * 9999],
)
def test_an_annotation_that_we_did_not_write_is_left_alone(note: str) -> None:
    job = there()
    job["metadata"]["annotations"] = {"tarragon.dev/v1alpha1-extra": note}

    made = convert(job, V1, V1BETA2).manifest

    assert made["metadata"]["annotations"]["tarragon.dev/v1alpha1-extra"] == note


def test_an_annotation_with_half_a_surrogate_pair_is_not_ours() -> None:
    job = there()
    notes = job["metadata"]["annotations"]
    notes["tarragon.dev/v1alpha1-extra"] = notes["tarragon.dev/v1alpha1-extra"].replace("ab12", r"\ud800")

    assert encode(convert(job, V1, V1ALPHA1).manifest)


def test_of_policies_in_two_places_those_that_count_are_taken_along() -> None:
    job: Any = {
        "apiVersion": V1,
        "kind": "TFJob",
        "metadata": {"name": "twice"},
        "spec": {
            "backoffLimit": 5,
            "ttlSecondsAfterFinished": 7,
            "runPolicy": {"backoffLimit": POLICIES["backoffLimit"], "cleanPodPolicy": "None"},
            "tfReplicaSpecs": {"Worker": {"template": template()}},
        },
    }

    made = convert(job, V1, V1BETA2)

    said = {name: value for name, value in made.manifest["spec"].items() if name != "tfReplicaSpecs"}
    assert said == {"backoffLimit": 3, "ttlSecondsAfterFinished": 7, "cleanPodPolicy": "None"}
    assert made.losses == ()
    assert convert(made.manifest, V1BETA2, V1).manifest == job


def test_a_job_that_kubectl_has_scaled_goes_with_the_workers_it_was_given() -> None:
    scaled = old()
    scaled["spec"]["tfReplicaSpecs"] = {"Worker": {"replicas": 5}}

    made = convert(scaled, V1ALPHA1, V1).manifest

    assert made["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 5
    assert convert(made, V1, V1ALPHA1).manifest == scaled


def test_the_annotation_is_small_also_of_large_jobs() -> None:
    [note] = there()["metadata"]["annotations"].values()

    assert len(note) < 1500
    assert json.loads(note)["in"] == V1
