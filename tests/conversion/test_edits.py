"""Edits between a conversion and the conversion back: edits win, and fields that conflict with them are losses."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tarragon.frameworks.tensorflow.conversion.convert import convert
from tarragon.kube.codec import encode
from tests.conversion.richest import POLICIES
from tests.frameworks.jobs import template

V1ALPHA1, V1BETA2, V1 = "kubeflow.org/v1alpha1", "kubeflow.org/v1beta2", "kubeflow.org/v1"


def old() -> dict[str, Any]:
    """A job with a master, two workers and a parameter server without template."""
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


def converted(target: str = V1) -> Any:
    return copy.deepcopy(convert(old(), V1ALPHA1, target).manifest)


def topics(source: Any, name: str, target: str) -> list[str]:
    return [loss.topic for loss in convert(source, name, target).losses]


@pytest.mark.parametrize(("kind", "position"), [("Worker", 1), ("PS", 2)])
def test_removed_replicas_stay_removed(kind: str, position: int) -> None:
    edited = converted()
    del edited["spec"]["tfReplicaSpecs"][kind]

    expected = old()
    del expected["spec"]["replicaSpecs"][position]
    assert convert(edited, V1, V1ALPHA1).manifest == expected


def test_a_changed_policy_is_converted_and_everything_else_is_restored() -> None:
    edited = converted()
    edited["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"

    back = convert(edited, V1, V1ALPHA1)

    expected = old()
    expected["spec"]["replicaSpecs"][1]["template"]["spec"]["restartPolicy"] = "Never"
    assert back.manifest["spec"]["RuntimeId"] == "ab12"
    assert back.manifest["spec"]["replicaSpecs"][1] == expected["spec"]["replicaSpecs"][1]
    assert "restarts" in [loss.topic for loss in back.losses]


def test_an_added_policy_is_converted_to_a_third_generation() -> None:
    edited = converted(V1BETA2)
    edited["spec"]["activeDeadlineSeconds"] = 60

    assert convert(edited, V1BETA2, V1).manifest["spec"]["runPolicy"]["activeDeadlineSeconds"] == 60


def test_an_edit_the_first_generation_lacks_is_a_loss_there_and_converted_elsewhere() -> None:
    edited = converted()
    edited["spec"]["enableDynamicWorker"] = True

    assert "enableDynamicWorker" in topics(edited, V1, V1ALPHA1)
    assert convert(edited, V1, "kubeflow.org/v1-dragon").manifest["spec"]["enableDynamicWorker"] is True


def test_a_template_added_to_the_standard_server_is_kept() -> None:
    edited = converted()
    edited["spec"]["tfReplicaSpecs"]["PS"]["template"] = template(image="mine")

    _, _, servers = convert(edited, V1, V1ALPHA1).manifest["spec"]["replicaSpecs"]

    assert servers["template"]["spec"]["containers"][0]["image"] == "mine"


@pytest.mark.parametrize(
    "note",
    ["", "no JSON", "null", "[]", '{"in": "kubeflow.org/v1"}', '{"in": "kubeflow.org/v1", "changes": 3}', "[" * 9999],
)
def test_an_annotation_of_others_is_not_changed(note: str) -> None:
    job = converted()
    job["metadata"]["annotations"] = {"tarragon.dev/v1alpha1-extra": note}

    made = convert(job, V1, V1BETA2).manifest

    assert made["metadata"]["annotations"]["tarragon.dev/v1alpha1-extra"] == note


def test_an_annotation_with_half_a_surrogate_pair_is_not_ours() -> None:
    job = converted()
    notes = job["metadata"]["annotations"]
    notes["tarragon.dev/v1alpha1-extra"] = notes["tarragon.dev/v1alpha1-extra"].replace("ab12", r"\ud800")

    assert encode(convert(job, V1, V1ALPHA1).manifest)


def test_of_policies_in_two_fields_the_effective_one_is_converted() -> None:
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

    policies = {name: value for name, value in made.manifest["spec"].items() if name != "tfReplicaSpecs"}
    assert policies == {"backoffLimit": 3, "ttlSecondsAfterFinished": 7, "cleanPodPolicy": "None"}
    assert made.losses == ()
    assert convert(made.manifest, V1BETA2, V1).manifest == job


def test_a_job_scaled_by_kubectl_is_converted_with_its_new_size() -> None:
    scaled = old()
    scaled["spec"]["tfReplicaSpecs"] = {"Worker": {"replicas": 5}}

    made = convert(scaled, V1ALPHA1, V1).manifest

    assert made["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 5
    assert convert(made, V1, V1ALPHA1).manifest == scaled


def test_a_job_scaled_by_kubectl_and_again_elsewhere_has_the_last_size() -> None:
    scaled = old()
    scaled["spec"]["tfReplicaSpecs"] = {"Worker": {"replicas": 5}}
    edited: Any = copy.deepcopy(convert(scaled, V1ALPHA1, V1).manifest)
    edited["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 6

    again = convert(edited, V1, V1ALPHA1).manifest

    assert again["spec"] == {**old()["spec"], "tfReplicaSpecs": {"Worker": {"replicas": 6}}}

    del edited["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
    default = convert(edited, V1, V1ALPHA1).manifest["spec"]["tfReplicaSpecs"]
    assert default == {"Worker": {"replicas": 1}}


def test_the_annotation_of_a_large_job_is_small() -> None:
    [note] = converted()["metadata"]["annotations"].values()

    assert len(note) < 1500
    assert json.loads(note)["in"] == V1
