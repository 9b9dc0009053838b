"""What the programs of a pod get to report their progress with."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tarragon.job.phase import Phase
from tarragon.job.progress import Progress, progress_patch
from tarragon.plan.objects.progress import MOUNT_PATH, VOLUME, ProgressEndpoint
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, manifest

ENDPOINT = ProgressEndpoint(url="https://h:8443", authority="-----BEGIN CERTIFICATE-----\nx\n")
URL = "https://h:8443/apis/trainer.kubeflow.org/v1alpha1/namespaces/n1/tfjobs/dist/status"
VARIABLES = {
    "KUBEFLOW_TRAINER_SERVER_URL": URL,
    "KUBEFLOW_TRAINER_SERVER_CA_CERT": "/var/run/secrets/kubeflow/trainer/ca.crt",
    "KUBEFLOW_TRAINER_SERVER_TOKEN": "/var/run/secrets/kubeflow/trainer/token",
}


def pod_of(job: dict[str, Any], endpoint: ProgressEndpoint | None = ENDPOINT) -> dict[str, Any]:
    world = World(job, OperatorSettings(progress=endpoint))
    world.settle()
    world.admit()
    world.settle()
    found: dict[str, Any] = world.pods["dist-worker-0"]
    return found


def job_with(**fields: Any) -> dict[str, Any]:
    """A job of one worker whose container has these fields."""
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(fields)
    return job


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", []) if each["name"] in VARIABLES}


def mounts(container: dict[str, Any]) -> list[str]:
    return [mount["mountPath"] for mount in container.get("volumeMounts", []) if mount["name"] == VOLUME]


def test_every_container_is_told_where_to_report() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append({"name": "aside", "image": "i"})

    containers = pod_of(job)["spec"]["containers"]

    assert [variables(each) for each in containers] == [VARIABLES, VARIABLES]
    assert [mounts(each) for each in containers] == [[MOUNT_PATH], [MOUNT_PATH]]


def test_the_token_is_for_reports_only_and_the_authority_stands_in_the_pod_itself() -> None:
    pod = pod_of(manifest({"Worker": 1}))

    sources = pod["spec"]["volumes"][-1]["projected"]["sources"]
    assert sources[0]["serviceAccountToken"] == {
        "audience": "trainer.kubeflow.org",
        "expirationSeconds": 3600,
        "path": "token",
    }
    field = sources[1]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"]
    name = field.removeprefix("metadata.annotations['").removesuffix("']")
    assert pod["metadata"]["annotations"][name] == ENDPOINT.authority


def test_a_pod_has_nothing_of_it_where_reports_are_not_served() -> None:
    pod = pod_of(manifest({"Worker": 1}), None)

    assert not variables(pod["spec"]["containers"][0])
    assert "volumes" not in pod["spec"]
    assert "annotations" not in pod["metadata"]


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://mine"}]},
        {"env": [{"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": "/mine"}]},
        {"volumeMounts": [{"name": "mine", "mountPath": MOUNT_PATH}]},
        {"volumeMounts": [{"name": "mine", "mountPath": f"{MOUNT_PATH}/"}]},
        {"volumeMounts": [{"name": "mine", "mountPath": f"{MOUNT_PATH}/token"}]},
    ],
)
def test_what_the_user_has_set_or_mounted_is_kept(fields: dict[str, Any]) -> None:
    job = job_with(**fields)
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["volumes"] = [{"name": "mine", "emptyDir": {}}]

    assert pod_of(copy.deepcopy(job))["spec"] == pod_of(job, None)["spec"]


def test_a_mount_beside_ours_is_no_obstacle() -> None:
    job = job_with(volumeMounts=[{"name": "mine", "mountPath": "/var/run/secrets/kubeflow/trainers"}])

    assert mounts(pod_of(job)["spec"]["containers"][0]) == [MOUNT_PATH]


def test_a_volume_of_the_user_with_our_name_is_kept() -> None:
    job = manifest({"Worker": 1})
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["volumes"] = [{"name": VOLUME, "emptyDir": {}}]

    assert pod_of(copy.deepcopy(job))["spec"] == pod_of(job, None)["spec"]


def test_the_annotation_of_a_template_that_was_copied_from_a_pod_does_not_count() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {
        "annotations": {"tarragon.dev/progress-ca": "an old one"}
    }

    assert pod_of(job)["metadata"]["annotations"]["tarragon.dev/progress-ca"] == ENDPOINT.authority


def test_pods_that_run_stay_as_they_are_when_reports_begin_to_be_served() -> None:
    world = World(manifest({"Worker": 1}))
    world.settle()
    world.admit()
    world.settle()
    before = copy.deepcopy(world.pods)

    world.settings = OperatorSettings(progress=ENDPOINT)
    world.settle()

    assert world.pods == before


# --------------------------------------------------------------------------------------- what becomes of a report


def reporting() -> World:
    """A job of two workers that run, of which the first has reported that 12 of 40 steps are done."""
    world = World(manifest({"Worker": 2}, policy="OnFailure"))
    world.settle()
    world.admit()
    world.settle()
    world.run("dist-worker-0", "dist-worker-1")
    world.settle()
    pod = world.pods["dist-worker-0"]["metadata"]["uid"]
    found = Progress(updated_at=world.now, done=12, total=40, remaining_seconds=9, metrics={"loss": "1"}, pod_uid=pod)
    world.patch_job({"status": progress_patch(found)["status"]})
    world.settle()
    return world


def reported(world: World) -> tuple[Any, Any]:
    status = world.job["status"]
    return status["tarragon"]["progress"], status.get("trainerStatus")


def test_a_report_stays_while_its_pod_is_there() -> None:
    world = reporting()
    before = copy.deepcopy(reported(world))
    world.delete_pod("dist-worker-1")
    world.settle()

    assert reported(world) == before
    assert before[0]["text"] == "step 12/40 (30 %) · loss 1"


def test_the_report_of_a_pod_that_is_gone_says_so_and_its_metrics_go() -> None:
    world = reporting()
    world.vanish("dist-worker-0")
    world.settle()

    ours, trainer = reported(world)
    assert (ours["done"], ours["total"], ours["earlier"], ours.get("text")) == (12, 40, True, None)
    assert not trainer
    before = copy.deepcopy(world.job)
    world.settle()
    assert world.job == before


def test_when_the_job_has_ended_its_last_report_stays_though_its_pods_go() -> None:
    world = reporting()
    before = copy.deepcopy(reported(world))
    for pod in ("dist-worker-0", "dist-worker-1"):
        world.exit(pod, 0)
    world.settle()
    world.vanish("dist-worker-0")
    world.settle()

    assert world.status.phase is Phase.SUCCEEDED
    assert reported(world) == before


def test_progress_of_no_known_pod_stays() -> None:
    world = reporting()
    world.patch_job({"status": {"tarragon": {"progress": {"pod": None}}}})
    before = copy.deepcopy(reported(world))
    world.vanish("dist-worker-0")
    world.settle()

    assert reported(world) == before
