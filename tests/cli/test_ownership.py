"""Commands show a pod as a job's only if the job controls it: by namespace, group, kind, name and uid."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarragon.cli.jobview.jobs import ClusterJob, pods_of, read_job
from tarragon.cli.top.watched_state import WatchedState
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import ALL_OBJECTS
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import NAMESPACES, PODS, Pod
from tarragon.kube.meta import CustomObject, Key, OwnerReference
from tarragon.localcluster.kubelet.base.layout import LogFolder
from tarragon.localcluster.kubelet.pod.stored_logs import PodFacts, StoredPodLogs
from tests.cli.conftest import Shell
from tests.cli.manifests import group, python, worker

Json = dict[str, Any]
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "victim", "uid": "u-1", "controller": True}
WRONG = pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "vb"},
        {"apiVersion": "nowhere.example/v1"},
        {"kind": "TfJob"},
        {"name": "other"},
        {"uid": "u-2"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)


def a_job() -> ClusterJob:
    metadata = {"name": "victim", "namespace": "va", "uid": "u-1"}
    spec = {"tfReplicaSpecs": {"Worker": group(python("pass"), 2)}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}
    return read_job(FRAMEWORKS[0], decode(encode(body), CustomObject))


def a_pod(called: str = "victim-worker-0", /, **wrong: str) -> Pod:
    namespace = wrong.pop("namespace", "va")
    metadata = {"name": called, "namespace": namespace, "uid": called, "ownerReferences": [{**OWNER, **wrong}]}
    return msgspec.convert({"metadata": metadata, "status": {"phase": "Running"}}, Pod)


def facts(**wrong: str) -> PodFacts:
    namespace = wrong.pop("namespace", "va")
    controller = msgspec.convert({**OWNER, **wrong}, OwnerReference)
    return PodFacts(namespace=namespace, name="p", uid="p", owner=controller.uid, controller=controller)


@WRONG
def test_only_pods_that_the_job_controls_are_its_replicas(wrong: dict[str, str]) -> None:
    assert [pod.metadata.name for _, pod in pods_of(a_job(), [a_pod()])] == ["victim-worker-0"]
    assert list(pods_of(a_job(), [a_pod(**wrong)])) == []


@WRONG
def test_top_counts_only_pods_that_the_job_controls(wrong: dict[str, str]) -> None:
    scene, job = WatchedState(), a_job()
    true, false = a_pod(), a_pod("victim-worker-1", **wrong)
    for pod in (true, false):
        scene.pod_changed(pod.metadata.key, None, pod)

    assert scene.pods[job.as_owner] == {Key("va", "victim-worker-0"): true}
    scene.pod_changed(true.metadata.key, true, None)
    assert job.as_owner not in scene.pods


@WRONG
def test_logs_on_this_machine_are_the_jobs_if_it_controlled_the_pod(wrong: dict[str, str]) -> None:
    folder, owner = LogFolder(Path("nowhere")), a_job().as_owner

    assert StoredPodLogs(facts(), folder).is_controlled_by(owner)
    assert not StoredPodLogs(facts(**wrong), folder).is_controlled_by(owner)


def test_logs_that_an_earlier_version_has_kept_are_told_apart_by_the_uid_alone() -> None:
    folder, owner = LogFolder(Path("nowhere")), a_job().as_owner
    earlier = PodFacts(namespace="va", name="p", uid="p", owner="u-1")

    assert StoredPodLogs(earlier, folder).is_controlled_by(owner)
    assert not StoredPodLogs(msgspec.structs.replace(earlier, owner="u-2"), folder).is_controlled_by(owner)
    assert not StoredPodLogs(msgspec.structs.replace(earlier, owner=""), folder).is_controlled_by(owner)


def test_no_command_shows_a_forged_pod_as_the_jobs(shell: Shell) -> None:
    says = "import time; print('true words', flush=True); time.sleep(600)"
    shell("submit", shell.file("job.yaml", worker("victim", says)))
    assert shell("wait", "victim", "--for", "running", "--timeout", "60").code == 0
    asyncio.run(forge_pods(Path(shell("kubeconfig").out.strip())))

    listed, elsewhere, described = shell("list"), shell("-n", "vb", "list"), shell("describe", "victim")
    logs, dumped = shell("logs", "victim"), shell("debug-dump", "victim", "--output", "dump")

    assert "Running" in listed.out
    assert "1/1" in listed.out
    assert "victim" not in elsewhere.out
    assert "victim-worker-0" in described.out
    assert "victim-worker-7" not in described.out
    assert "worker-7" not in described.out
    assert logs.out == "[worker-0] true words\n"
    assert dumped.code == 0
    shell("delete", "victim")
    assert shell("logs", "victim", "--run", "-1").out == "[worker-0] true words\n"


async def forge_pods(config: Path) -> None:
    """Return when they have ended: one in another namespace, two beside the job, one of them without any owner."""
    async with HttpClient(load_kubeconfig({}, path=config).rest_config, random.Random(1)) as http:
        await http.create(NAMESPACES, {"metadata": {"name": "vb"}})
        true = await http.get(PODS.with_model(dict), Key("default", "victim-worker-0"))
        (owner,) = true["metadata"]["ownerReferences"]
        nowhere = {**owner, "apiVersion": "nowhere.example/v1"}
        keys = {
            Key("vb", "victim-worker-0"): [nowhere],
            Key("default", "victim-worker-7"): [nowhere],
            Key("default", "victim-worker-8"): [],
        }
        container = python("print('forged words')")
        for key, owners in keys.items():
            metadata = {"name": key.name, "namespace": key.namespace, "labels": true["metadata"]["labels"]}
            spec = {"containers": [container], "restartPolicy": "Never", "nodeName": true["spec"]["nodeName"]}
            await http.create(PODS, {"metadata": {**metadata, "ownerReferences": owners}, "spec": spec})
        listing = await http.list(PODS)
        left = set(keys) - {pod.metadata.key for pod in listing.items if pod.is_finished}
        async for event in http.watch(PODS, ALL_OBJECTS, listing.resource_version):
            if not left:
                return
            if event.object is not None and event.object.is_finished:
                left.discard(event.object.metadata.key)
                if not left:
                    return
