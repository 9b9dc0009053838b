from __future__ import annotations

import pytest

from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.manifest.overrides import (
    set_path,
    with_annotations_in_templates,
    without_gpus,
    without_template_annotations,
)
from tarragon.kube.meta import JsonObject


def job() -> JsonObject:
    container = {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:2.21.0-gpu",
        "resources": {"limits": {"cpu": "4", "nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}},
    }
    template = {"metadata": {"annotations": {"kubeshare/gpu_request": "0.5"}}, "spec": {"containers": [container]}}
    return {"kind": "TFJob", "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}}


def test_a_value_is_set_where_the_path_leads_and_nowhere_else() -> None:
    before = job()

    after = set_path(before, "spec.tfReplicaSpecs.Worker.replicas", 3)

    assert after["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3
    assert before == job()


def test_maps_on_the_way_are_made() -> None:
    assert set_path({}, "spec.runPolicy.backoffLimit", 2) == {"spec": {"runPolicy": {"backoffLimit": 2}}}


@pytest.mark.parametrize("element", ["[0]", "[tensorflow]"])
def test_an_element_of_a_list_is_named_by_its_place_or_its_name(element: str) -> None:
    path = f"spec.tfReplicaSpecs.Worker.template.spec.containers{element}.image"

    after = set_path(job(), path, "other")

    assert after["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == "other"


def test_a_name_with_dots_is_quoted() -> None:
    after = set_path({}, 'metadata.annotations."tarragon.dev/resize"', "restart")

    assert after == {"metadata": {"annotations": {"tarragon.dev/resize": "restart"}}}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "the path is empty"),
        ("spec..x", "is not a path"),
        (".spec", "is not a path"),
        ("spec.tfReplicaSpecs.Worker.replicas.x", "can't set x in 2, which is not a map"),
        ("spec.tfReplicaSpecs.Worker.template.spec.containers[1].image", "the list has 1 elements"),
        ("spec.tfReplicaSpecs.Worker.template.spec.containers[tf].image", "named elements: tensorflow"),
        ("spec[0]", "not a list at [0]"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(path: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[")):
        set_path(job(), path, 1)


def test_the_gpu_of_2017_is_one_too() -> None:
    resources = {"resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1, "cpu": 1}}}

    assert without_gpus(resources) == (
        {"resources": {"limits": {"cpu": 1}}},
        ["resources.limits.alpha.kubernetes.io/nvidia-gpu"],
    )


def test_shares_of_a_gpu_are_taken_out_in_every_form() -> None:
    resources = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
    template = {
        "metadata": {"annotations": {"kubeshare/GPUID": "abcde", "a": "b"}, "labels": {"sharedgpu/priority": "1"}},
        "spec": {
            "containers": [
                {
                    "env": [{"name": "DRAGON_KUBESHARE", "value": "true"}, {"name": "A"}],
                    "resources": {"limits": {f"nvidia.com/{name}": 1 for name in resources}},
                }
            ]
        },
    }

    after, taken = without_gpus(template)

    assert after == {
        "metadata": {"annotations": {"a": "b"}, "labels": {}},
        "spec": {"containers": [{"env": [{"name": "A"}], "resources": {"limits": {}}}]},
    }
    assert len(taken) == 8


def test_every_request_for_a_gpu_can_be_taken_out_and_nothing_else() -> None:
    after, taken = without_gpus(job())

    template = after["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    assert template["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "4"}, "requests": {}}
    assert template["metadata"]["annotations"] == {}
    assert template["spec"]["containers"][0]["image"] == "tensorflow/tensorflow:2.21.0-gpu"
    assert taken == [
        "spec.tfReplicaSpecs.Worker.template.metadata.annotations.kubeshare/gpu_request",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.limits.nvidia.com/gpu",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.requests.nvidia.com/gpu",
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"tfReplicaSpecs": {"PS": {"template": {"spec": {"containers": []}}}}},
        {"replicaSpecs": [{"template": {"spec": {"containers": []}}}]},
        {"template": {"metadata": None, "spec": {"containers": []}}},
    ],
)
def test_every_shape_of_a_job_has_its_pod_templates_annotated(spec: JsonObject) -> None:
    after = with_annotations_in_templates({"spec": spec}, {"tarragon.dev/workdir": "/home/me"})

    assert [template["metadata"] for _, template in pod_templates(after)] == [
        {"annotations": {"tarragon.dev/workdir": "/home/me"}}
    ]


def test_a_sharepod_is_annotated_itself_because_it_is_its_own_template() -> None:
    written = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "b"}]}}
    after = with_annotations_in_templates(written, {"tarragon.dev/workdir": "/home/me"})

    assert after["metadata"] == {"name": "a", "annotations": {"tarragon.dev/workdir": "/home/me"}}
    assert [path for path, _ in pod_templates(after)] == ["spec"]
    assert without_template_annotations(after, {"tarragon.dev/workdir"}) == written


def test_what_is_no_job_is_left_alone() -> None:
    assert with_annotations_in_templates({"spec": 5}, {"a": "b"}) == {"spec": 5}
    assert without_gpus({"spec": None}) == ({"spec": None}, [])
