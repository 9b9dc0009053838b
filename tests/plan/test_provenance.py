"""What a job was made of, on record for whoever asks later."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
from typing import Any

import pytest

from tarragon import __version__
from tarragon.job.model import MANIFEST_ANNOTATION
from tarragon.plan.status.provenance import spec_digest
from tests.plan.world import World, manifest

LISTED: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1alpha1",
    "kind": "TFJob",
    "metadata": {"name": "dist", "namespace": "n1"},
    "spec": {
        "replicaSpecs": [
            {
                "tfReplicaType": "MASTER",
                "replicas": 1,
                "template": {
                    "spec": {
                        "containers": [{"name": "tensorflow", "image": "train", "command": ["train"]}],
                        "restartPolicy": "OnFailure",
                    }
                },
            }
        ]
    },
}


def begun(job: dict[str, Any]) -> World:
    world = World(job)
    world.settle()
    world.admit()
    world.settle()
    return world


def provenance(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.tarragon["provenance"]
    return found


def pulled(world: World, name: str, image_id: str) -> None:
    """Its node reports which image it runs."""
    [status] = world.pods[name]["status"]["containerStatuses"]
    status = {**status, "imageID": image_id}
    world.pods[name] = {
        **world.pods[name],
        "status": {**world.pods[name]["status"], "containerStatuses": [status]},
    }


def test_the_manifest_and_the_version_are_on_record_at_first_sight() -> None:
    job = manifest({"Worker": 1})
    world = begun(job)

    assert provenance(world) == {"manifest": spec_digest(job["spec"]), "operator": __version__}


def test_a_later_edit_changes_nothing_about_what_was_submitted() -> None:
    job = manifest({"Worker": 1})
    world = begun(job)
    world.edit({"runPolicy": {"backoffLimit": 7}})
    world.settle()

    assert provenance(world)["manifest"] == spec_digest(job["spec"])


def test_it_is_that_of_the_manifest_though_the_operator_completes_the_spec() -> None:
    world = begun(copy.deepcopy(LISTED))

    assert world.job["spec"] != LISTED["spec"]
    assert provenance(world)["manifest"] == spec_digest(LISTED["spec"])


def test_an_edited_copy_of_a_completed_job_is_not_taken_for_the_original() -> None:
    first = begun(copy.deepcopy(LISTED)).job
    again = {**copy.deepcopy(LISTED), "spec": copy.deepcopy(first["spec"])}
    again["metadata"]["annotations"] = dict(first["metadata"]["annotations"])
    assert provenance(begun(copy.deepcopy(again)))["manifest"] == spec_digest(LISTED["spec"])

    again["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["image"] = "other"
    assert provenance(begun(again))["manifest"] == spec_digest(again["spec"])


def test_a_manifest_that_is_not_completed_gets_no_annotation() -> None:
    assert MANIFEST_ANNOTATION not in begun(manifest({"Worker": 1})).job["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    "image_id",
    ["sha256:aa", "docker.io/library/train@sha256:aa", "docker-pullable://train@sha256:aa", "docker://sha256:aa"],
)
def test_images_are_recorded_once_however_their_runtime_writes_them(image_id: str) -> None:
    world = begun(manifest({"Worker": 3}))
    world.run()
    for index in range(3):
        pulled(world, f"dist-worker-{index}", image_id)
    world.settle()

    assert provenance(world)["images"] == {"train": "sha256:aa"}


@pytest.mark.parametrize("folder", ["/envs/my tf", "/envs/tf@2.21"])
def test_the_folder_that_stands_for_an_image_is_recorded_as_it_is(folder: str) -> None:
    world = begun(manifest({"Worker": 1}))
    world.run()
    pulled(world, "dist-worker-0", folder)
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert provenance(world)["images"] == {"train": folder}


def test_a_tag_that_was_moved_while_the_job_ran_is_seen() -> None:
    world = begun(manifest({"Worker": 2}))
    world.run()
    pulled(world, "dist-worker-0", "train@sha256:bb")
    world.settle()
    pulled(world, "dist-worker-1", "train@sha256:aa")
    world.settle()

    assert provenance(world)["images"] == {"train": "sha256:aa sha256:bb"}


def test_all_of_it_outlives_the_pods_and_the_end() -> None:
    world = begun(manifest({"Worker": 1}, run_policy={"cleanPodPolicy": "All"}))
    world.run()
    pulled(world, "dist-worker-0", "train@sha256:aa")
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()
    world.bury()
    world.settle()

    assert world.own_pods() == {}
    assert provenance(world)["images"] == {"train": "sha256:aa"}


@pytest.mark.parametrize("spec", [{"b": 1, "a": [1.5, "ü\n", None, True]}, {"a": {"z": 2.0, "y": 'é " \\ /'}}])
def test_anybody_can_compute_it_anew_with_jq(spec: dict[str, Any]) -> None:
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed")
    stored = json.dumps(spec).replace("2.0", "2")  # as an API server has it
    written = subprocess.run([jq, "-cjS", "."], input=stored.encode(), capture_output=True, check=True).stdout

    assert spec_digest(spec) == f"sha256:{hashlib.sha256(written).hexdigest()}"


def test_a_spec_that_is_nested_without_end_has_no_digest_and_its_job_goes_on() -> None:
    deep: Any = "end"
    for _ in range(5000):
        deep = {"a": deep}

    assert spec_digest({"odd": deep}) == ""
