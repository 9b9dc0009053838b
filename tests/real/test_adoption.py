"""Jobs that training-operator began on a real cluster, taken over; and a record that a definition dropped."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from typing import Any

import pytest
import yaml

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES
from tarragon.kube.meta import Key
from tests import trainingoperator
from tests.cli.conftest import Shell
from tests.conftest import ROOT
from tests.deploy.stage import Kubectl
from tests.docs import shell as bash
from tests.docs.commands import commands_of
from tests.operator.test_operator import FOREIGN_STATUS
from tests.real.scene import TFJOBS, Scene, a_scene, tfjob
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]
DEFINITION = Key("", TENSORFLOW.crd()["metadata"]["name"])


async def begun(scene: Scene, manifest: Json, namespace: str = "default") -> dict[str, str]:
    """As training-operator has it, its pods bound by kube-scheduler. Their uids."""
    name = manifest["metadata"]["name"]
    manifest["metadata"]["namespace"] = namespace
    job = await scene.http.create(TFJOBS.with_model(dict), manifest)
    wanted = [pod["metadata"]["name"] for pod, _ in trainingoperator.objects(job)]
    for pod, service in trainingoperator.objects(job):
        await scene.http.create(SERVICES, service)
        await scene.http.create(PODS, pod)
    status = {"status": trainingoperator.status(job)}
    await scene.http.patch(TFJOBS, Key(namespace, name), status, subresource="status")
    await scene.until(lambda: all(runs(scene, pod, namespace) for pod in wanted))
    return {pod: scene.uids()[pod] for pod in wanted}


def runs(scene: Scene, pod: str, namespace: str = "default") -> bool:
    found = scene.pods.objects.get(Key(namespace, pod))
    return found is not None and found.status.phase == "Running"


def done_to_pods(scene: Scene, since: int) -> Counter[str]:
    """Creations and deletions of pods by the audit log, beyond its first lines."""
    return Counter(
        event["verb"]
        for event in scene.plane.audit_events()[since:]
        if event.get("objectRef", {}).get("resource") == "pods"
        and "subresource" not in event["objectRef"]
        and event["verb"] in {"create", "delete", "deletecollection"}
    )


async def test_a_job_of_the_training_operator_goes_on_with_us_and_not_a_pod_is_made_or_deleted(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_scene(emptied_control_plane) as scene:
        kubectl = Kubectl(emptied_control_plane.kubeconfig)
        flat = tfjob("flat")
        flat["spec"]["cleanPodPolicy"] = "None"
        pods = {**await begun(scene, tfjob("nested")), **await begun(scene, flat)}
        services = await kubectl("get", "services", "-o", "yaml")
        lines = len(scene.plane.audit_events())

        await scene.operator(None, "--no-leader-elect")
        for name in ("nested", "flat"):
            await until_left_alone(scene, kubectl, name)
        assert "generation" not in await kubectl("get", "tfjobs", "-o", "jsonpath={.items[*].metadata.annotations}")
        assert (await tarragon(scene, "list")).count("to hand it to Tarragon: kubectl annotate -n default") == 2
        await kubectl("annotate", "tfjobs", "nested", "flat", "tarragon.dev/adopt=true")

        await scene.until(lambda: all(state_of(scene, name) == "Running" for name in ("nested", "flat")))
        for name in ("nested", "flat"):
            job = json.loads(await kubectl("get", "tfjob", name, "-o", "json"))
            assert job["metadata"]["annotations"]["tarragon.dev/generation"] == (
                "kubeflow.org/v1" if name == "nested" else "kubeflow.org/v1-flat"
            )
            assert job["status"]["startTime"] == trainingoperator.BEGAN
            running = next(each for each in job["status"]["conditions"] if each["type"] == "Running")
            assert (running["status"], running["lastTransitionTime"]) == ("True", trainingoperator.BEGAN)
            assert job["status"]["tarragon"]["admission"]["size"] == {"PS": 1, "Worker": 2}
            told = await tarragon(scene, "describe", name)
            assert len(re.findall(r"^ +(?:ps|worker)-\d +Running .* hollow-\d", told, re.MULTILINE)) == 3
        assert await kubectl("get", "services", "-o", "yaml") == services
        workers = [pod for pod in pods if "-worker-" in pod]
        await kubectl("annotate", "pods", *workers, "tarragon.dev/hollow-seconds=1")
        await scene.until_states(["nested", "flat"], "Succeeded")

        assert done_to_pods(scene, lines) == Counter()
        assert {pod: scene.uids().get(pod) for pod in pods} == pods


async def test_every_command_of_the_page_on_taking_over_works_in_the_order_of_the_page(
    own_control_plane: ControlPlane,
) -> None:
    async with a_scene(own_control_plane) as scene:
        kubectl = Kubectl(own_control_plane.kubeconfig)
        for name in ("kubeflow", "team"):
            await kubectl("create", "namespace", name)
        await kubectl("create", "deployment", "training-operator", "-n", "kubeflow", "--image=i", "--replicas=0")
        pods = await begun(scene, tfjob("mnist"), "team")
        await begun(scene, tfjob("other"), "team")

        with bash.Shell(ROOT, {**os.environ, "KUBECONFIG": str(own_control_plane.kubeconfig)}) as shell:
            story = commands_of(ROOT / "docs" / "adoption.md")
            for command in story:
                result = await asyncio.to_thread(shell.run, command.text, timeout=120)
                assert result.exit_code == 0, f"{command}\n{result.output}"
        assert len(story) > 5
        await scene.operator(None, "--no-leader-elect")
        await scene.until(lambda: all(state_of(scene, name, "team") == "Running" for name in ("mnist", "other")))
        assert pods.items() <= scene.uids().items()


async def test_a_pod_that_is_lost_after_the_take_over_is_replaced_among_the_others(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_scene(emptied_control_plane) as scene:
        kubectl = Kubectl(emptied_control_plane.kubeconfig)
        pods = await begun(scene, tfjob("a"))
        await scene.operator(None, "--no-leader-elect", "--adopt")
        await scene.until(lambda: state_of(scene, "a") == "Running")

        await kubectl("delete", "pod", "a-worker-1", "--wait=false")
        await scene.until(lambda: runs(scene, "a-worker-1") and scene.uids()["a-worker-1"] != pods["a-worker-1"])

        assert {**scene.uids(), "a-worker-1": ""} == {**pods, "a-worker-1": ""}
        service = yaml.safe_load(await kubectl("get", "service", "a-worker-1", "-o", "yaml"))
        pod = yaml.safe_load(await kubectl("get", "pod", "a-worker-1", "-o", "yaml"))
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        told = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}["TF_CONFIG"]
        server = yaml.safe_load(await kubectl("get", "pod", "a-ps-0", "-o", "yaml"))
        known = {each["name"]: each["value"] for each in server["spec"]["containers"][0]["env"]}["TF_CONFIG"]
        assert json.loads(told)["cluster"] == json.loads(known)["cluster"]


async def test_jobs_keep_their_pods_when_a_foreign_definition_drops_their_record_and_ours_is_back(
    own_control_plane: ControlPlane,
) -> None:
    async with a_scene(own_control_plane) as scene:
        kubectl = Kubectl(own_control_plane.kubeconfig)
        await scene.operator(None, "--no-leader-elect")
        names = [f"job-{number}" for number in range(5)]
        await scene.submit(names, tfjob)
        await scene.until_states(names, "Running")
        await scene.until(lambda: len(scene.uids()) == 3 * len(names))
        before, lines = scene.uids(), len(scene.plane.audit_events())

        await scene.http.patch(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION, foreign())
        # The server takes a moment to heed it, in which a write loses nothing.
        while "tarragon" in (await scene.http.get(TFJOBS.with_model(dict), Key("default", "job-0")))["status"]:
            await scene.clock.sleep(0.1)
        await kubectl("annotate", "tfjobs", "--all", "touched=yes")
        await scene.until(lambda: all(not record_of(scene, name) for name in names))
        await kubectl("annotate", "tfjobs", "--all", "touched=again", "--overwrite")
        for name in names:
            await until_told(scene, kubectl, name, "StatusNotKept")
        await scene.http.patch(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION, {"spec": TENSORFLOW.crd()["spec"]})

        await scene.until(lambda: all("admission" in record_of(scene, name) for name in names))
        await scene.until(lambda: all(state_of(scene, name) == "Running" for name in names))
        assert scene.uids() == before
        assert done_to_pods(scene, lines) == Counter()


async def tarragon(scene: Scene, *arguments: str) -> str:
    """What it prints on that cluster."""
    shell = Shell(folder=ROOT, home=scene.plane.folder / "home", variables={"KUBECONFIG": str(scene.plane.kubeconfig)})
    ended = await asyncio.to_thread(shell, "--kubeconfig", str(scene.plane.kubeconfig), *arguments)
    assert ended.code == 0, ended.err
    return ended.out


def foreign() -> Json:
    """As another operator has it: without a place for our part of the status."""
    versions = TENSORFLOW.crd()["spec"]["versions"]
    for version in versions:
        schema = version["schema"]["openAPIV3Schema"]
        del schema["x-kubernetes-preserve-unknown-fields"]
        schema["properties"]["status"] = FOREIGN_STATUS
        del version["selectableFields"]
    return {"spec": {"versions": versions}}


def record_of(scene: Scene, name: str, namespace: str = "default") -> Json:
    job = scene.jobs.objects.get(Key(namespace, name))
    status = job.status if job is not None else None
    record: Json = (status if isinstance(status, dict) else {}).get("tarragon") or {}
    return record


def state_of(scene: Scene, name: str, namespace: str = "default") -> str:
    return str(record_of(scene, name, namespace).get("state", ""))


async def until_left_alone(scene: Scene, kubectl: Kubectl, name: str) -> None:
    said = await until_told(scene, kubectl, name, "LeftToOtherOperator")
    assert said == 'left to the operator that started it; set the annotation tarragon.dev/adopt: "true" to hand it over'


async def until_told(scene: Scene, kubectl: Kubectl, name: str, reason: str) -> str:
    """The words of an event about that job."""
    fields = f"involvedObject.name={name},reason={reason}"
    while True:
        said = await kubectl("get", "events", "--field-selector", fields, "-o", "jsonpath={.items[*].message}")
        if said:
            return said
        await scene.clock.sleep(0.2)
