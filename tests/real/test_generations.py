"""Jobs of every version of kubeflow.org on a real API server, which serves each of them in all the others."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.tensorflow.crd import VERSIONS
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.meta import Key
from tests.deploy.stage import Kubectl
from tests.real.scene import Scene, a_scene
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.both_releases, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]

JOBS: dict[str, tuple[str, Json, str]] = {
    "list": ("v1alpha1", {"RuntimeId": "ab12"}, "kubeflow.org/v1alpha1"),
    "alpha": ("v1alpha2", {"cleanPodPolicy": "None"}, "kubeflow.org/v1alpha2"),
    "plain": ("v1alpha2", {}, "kubeflow.org/v1alpha2"),
    "beta1": ("v1beta1", {"ttlSecondsAfterFinished": 3600}, "kubeflow.org/v1beta1"),
    "beta2": ("v1beta2", {"backoffLimit": 3}, "kubeflow.org/v1beta2"),
    "flat": ("v1", {"cleanPodPolicy": "None"}, "kubeflow.org/v1-flat"),
    "nested": ("v1", {"runPolicy": {"cleanPodPolicy": "None"}}, "kubeflow.org/v1"),
    "dragon": ("v1", {"max-instances": 2, "min-instances": 1}, "kubeflow.org/v1-dragon"),
}
"""Name -> the version that its user wrote, what else stands in its spec, and the generation that it is of."""

SELECTORS = {
    "kubeflow.org/v1alpha1": "kubeflow.org=,tf_job_name={},runtime_id=ab12",
    "kubeflow.org/v1alpha2": "group_name=kubeflow.org,tf_job_name={}",
    "kubeflow.org/v1beta1": "group_name=kubeflow.org,tf_job_name={}",
    "kubeflow.org/v1beta2": "group-name=kubeflow.org,tf-job-name={}",
    "kubeflow.org/v1-flat": "group-name=kubeflow.org,tf-job-name={}",
    "kubeflow.org/v1": "training.kubeflow.org/operator-name=tfjob-controller,training.kubeflow.org/job-name={}",
    "kubeflow.org/v1-dragon": "group-name=kubeflow.org,tf-job-name={}",
}

OF_2018 = re.compile(r"(?P<type>.+)-ab12-(?P<index>[0-9]+)-[a-z0-9]{5}")


def replica(pod: str) -> str:
    """Its name as later generations have it: without runtime id and tail."""
    return OF_2018.sub(r"\g<type>-\g<index>", pod)


def manifest(name: str, *, seconds: float | None = None) -> Json:
    version, spec, _ = JOBS[name]
    container = {"name": "tensorflow", "image": "i"}
    quick = {"annotations": {"tarragon.dev/hollow-seconds": str(seconds)}} if seconds is not None else {}
    # The list has it here, as Kubernetes does, and takes Always for granted; later ones have a place of their own.
    pod: Json = {"containers": [container], **({"restartPolicy": "OnFailure"} if name == "list" else {})}
    server = {"replicas": 1, "template": {"spec": pod}}
    worker = {"replicas": 2, "template": {"metadata": quick, "spec": pod}}
    replicas: Json = {"tfReplicaSpecs": {"PS": server, "Worker": worker}}
    if name == "list":
        replicas = {
            "replicaSpecs": [{"tfReplicaType": "PS", **server}, {"tfReplicaType": "WORKER", **worker}],
            "terminationPolicy": {"chief": {"replicaName": "WORKER", "replicaIndex": 0}},
        }
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, **replicas},
    }


def in_version(version: str, name: str) -> tuple[str, str]:
    """Arguments of kubectl."""
    return f"tfjobs.{version}.kubeflow.org", name


def workers_of(job: Json) -> Json:
    found: Json = (
        job["spec"]["replicaSpecs"][1] if "replicaSpecs" in job["spec"] else job["spec"]["tfReplicaSpecs"]["Worker"]
    )
    return found


def succeeded(status: Json, generation: str) -> int:
    """How many workers, where that generation says it; no other has a word in the status."""
    if generation == "kubeflow.org/v1alpha1":
        (workers,) = (each for each in status["replicaStatuses"] if each["tf_replica_type"] == "WORKER")
        assert (status["phase"] in {"CleanUp", "Done"}, status["state"]) == (True, "Succeeded")
        assert not {"tfReplicaStatuses", "startTime"} & status.keys()
        return int(workers["ReplicasStates"]["Succeeded"])
    name = "tfReplicaStatuses" if generation == "kubeflow.org/v1alpha2" else "replicaStatuses"
    assert not ({"tfReplicaStatuses", "replicaStatuses", "phase", "state"} - {name}) & status.keys()
    return int(status[name]["Worker"]["succeeded"])


@pytest.fixture
async def scene(emptied_control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with a_scene(emptied_control_plane) as scene:
        yield scene


@pytest.fixture
def kubectl(scene: Scene) -> Kubectl:
    return Kubectl(scene.plane.kubeconfig)


def mark(scene: Scene, name: str) -> str:
    job = scene.jobs.objects.get(Key("default", name))
    return "" if job is None else recorded_generation(job) or ""


async def until_marked(scene: Scene, *names: str) -> None:
    await scene.until(lambda: {name: mark(scene, name) for name in names} == {name: JOBS[name][2] for name in names})


async def test_a_job_of_each_version_is_recognised_and_is_the_same_through_every_other(
    scene: Scene, kubectl: Kubectl
) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(manifest(name, seconds=1) for name in JOBS))
    await until_marked(scene, *JOBS)
    await scene.until_states(JOBS, "Succeeded")

    for name, (_, _, generation) in JOBS.items():
        for version in VERSIONS:
            seen = json.loads(await kubectl("get", *in_version(version, name), "-o", "json"))
            assert seen["apiVersion"] == f"kubeflow.org/{version}"
            is_old = generation in {f"kubeflow.org/{old}" for old in VERSIONS[1:]}
            expected = generation if is_old else None
            assert seen["metadata"].get("annotations", {}).get(GENERATION_ANNOTATION) == expected
            assert seen["status"]["tarragon"]["generation"] == generation
            assert succeeded(seen["status"], generation) in {1, 2}, "worker 1 may be a moment behind"
        found = json.loads(await kubectl("get", "pods", "-l", SELECTORS[generation].format(name), "-o", "json"))
        of_job = {replica(pod["metadata"]["name"]) for pod in found["items"]}
        assert of_job - {f"{name}-ps-0", f"{name}-worker-1"} == {f"{name}-worker-0"}
    assert set(scene.made().values()) == {1}


async def test_a_job_made_while_nobody_looked_is_known_by_the_version_it_was_made_through(
    scene: Scene, kubectl: Kubectl
) -> None:
    """Created, then edited through another version, before any operator could mark it."""
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(manifest(name) for name in JOBS))
    for name in JOBS:
        patch = {"metadata": {"labels": {"seen": "yes"}}, "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}}}
        await kubectl("patch", *in_version("v1", name), "--type=merge", "-p", json.dumps(patch))
    await scene.operator(None, "--no-leader-elect")

    await until_marked(scene, *JOBS)
    await scene.until_states(JOBS, "Running")


async def test_a_job_that_is_made_again_from_what_kubectl_printed_of_it_is_what_it_was(
    scene: Scene, kubectl: Kubectl
) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(manifest(name) for name in JOBS))
    await scene.until_states(JOBS, "Running")
    names = list(JOBS)
    printed = [await kubectl("get", *in_version(VERSIONS[index % len(VERSIONS)], name), "-o", "yaml")
               for index, name in enumerate(names)]  # fmt: skip
    await kubectl("delete", "tfjobs", *names, "--wait=true")
    await kubectl("delete", "pods", "--all", "--wait=true")

    await kubectl("create", "-f", "-", stdin="---\n".join(printed))
    await until_marked(scene, *names)
    await scene.until_states(names, "Running")


async def test_a_job_that_is_applied_again_and_again_stays_what_it_was(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifest(name) for name in JOBS))
    await scene.until_states(JOBS, "Running")
    await scene.until(lambda: len(scene.uids()) == 3 * len(JOBS))
    before = scene.uids()

    said = await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifest(name) for name in JOBS))
    told = {
        line.split()[0].partition("/")[2]: line.split()[1] for line in said.splitlines() if line.startswith("tfjob")
    }
    # Of the list the operator has filled in what was left out, as that of its time did; a list is applied whole.
    assert told == {name: "configured" if name == "list" else "unchanged" for name in JOBS}
    smaller = [manifest(name) for name in JOBS]
    for job in smaller:
        job["apiVersion"] = "kubeflow.org/v1"
        workers_of(job)["replicas"] = 1
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(smaller))
    kept = {pod: uid for pod, uid in before.items() if not replica(pod).endswith("-worker-1")}
    await scene.until(lambda: scene.uids() == kept)
    await until_marked(scene, *JOBS)


async def test_kubectl_scales_a_job_in_every_version_and_the_scale_says_what_an_autoscaler_reads(
    scene: Scene, kubectl: Kubectl
) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(manifest(name) for name in JOBS))
    await scene.until_states(JOBS, "Running")
    await scene.until(lambda: len(scene.uids()) == 3 * len(JOBS))
    before = scene.uids()

    for index, name in enumerate(JOBS):
        version = VERSIONS[index % len(VERSIONS)]
        path = f"/apis/kubeflow.org/{version}/namespaces/default/tfjobs/{name}/scale"
        if name == "list":
            # What is no map has no place to read the wish from until somebody has scaled it.
            await kubectl("scale", "/".join(in_version(version, name)), "--replicas=2")
        scale = json.loads(await kubectl("get", "--raw", path))
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
        selected = await kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name")
        assert {replica(pod) for pod in selected.split()} == {f"pod/{name}-worker-0", f"pod/{name}-worker-1"}
        await kubectl("scale", "/".join(in_version(version, name)), "--replicas=1", "--current-replicas=2")
    kept = {pod: uid for pod, uid in before.items() if not replica(pod).endswith("-worker-1")}
    await scene.until(lambda: scene.uids() == kept)
    await until_marked(scene, *JOBS)
