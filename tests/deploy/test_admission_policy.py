"""The component admission-policy: what neither roles nor schemas can say, the API server checks by policies."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
import yaml

from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.frameworks.registry import framework_of
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.conftest import ROOT
from tests.deploy.stage import Kubectl, Stage, group
from tests.deploy.test_kinds import SEEDS, jobs_in, resource_of

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]

SINCE = 30
"""The minor version that has admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy."""
FILE = "deploy/components/admission-policy/policies.yaml"
POLICIES = {
    document["metadata"]["name"]
    for document in yaml.safe_load_all((ROOT / FILE).read_text())
    if document["kind"] == "ValidatingAdmissionPolicy"
}
FORGED = json.dumps({"status": {"tarragon": {"state": "Succeeded"}}})
HONEST = json.dumps({"status": {"startTime": "2026-01-01T00:00:00Z"}})
PROBES = (
    ("create", "configmap", "probe", "--as=system:serviceaccount:tarragon-system:tarragon"),
    ("patch", "tfjob", "probe", "--subresource=status", "--type=merge", "--as=probe", "-p", FORGED),
)
"""What is refused to the operator, and to who may write statuses."""
TYPO: Json = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "typo"},
    "spec": {
        "runPolcy": {},
        "runPolicy": {"cleanPodPolcy": "All", "schedulingPolicy": {"que": "x"}},
        "tfReplicaSpecs": {
            "Worker": {
                "replcas": 3,
                "template": {
                    "spec": {
                        "nodeSelektor": {"a": "b"},
                        "containers": [{"name": "tensorflow", "image": "i", "comand": ["a"]}],
                    }
                },
            }
        },
    },
}
TYPO_PATHS = [
    "spec.runPolcy",
    "spec.runPolicy.cleanPodPolcy",
    "spec.runPolicy.schedulingPolicy.que",
    "spec.tfReplicaSpecs.Worker.replcas",
    "spec.tfReplicaSpecs.Worker.template.spec.nodeSelektor",
    "spec.tfReplicaSpecs.Worker.template.spec.containers[].comand",
]


@pytest.fixture
async def guarded(stage: Stage) -> AsyncIterator[Stage]:
    """With the component, which a server begins to enforce a moment after it is there."""
    if stage.plane.minor < SINCE:
        pytest.skip("this server has no ValidatingAdmissionPolicy")
    await stage.submit("probe", Worker=group(1))
    await stage.kubectl("create", "clusterrolebinding", "probe", "--clusterrole=tarragon-status-editor", "--user=probe")
    await stage.until_may("probe", "patch", "tfjobs", "--subresource=status")
    await stage.kubectl("apply", "-f", FILE)
    try:
        await until_enforced(stage, POLICIES)
        yield stage
    finally:
        await stage.kubectl("delete", "-f", FILE)
        await until_enforced(stage, set())
        await stage.kubectl("delete", "clusterrolebinding", "probe")


async def until_enforced(stage: Stage, policies: AbstractSet[str]) -> None:
    """Neither more nor fewer of ours."""
    async with stage.patience():
        while await enforced(stage) != policies:
            await stage.clock.sleep(0.2)


async def enforced(stage: Stage) -> AbstractSet[str]:
    """The policies that object to what would break each of them."""
    jobs = {resource_of(job).full_name: job for path in SEEDS for job in jobs_in(path) if job["kind"] != "SharePod"}
    said = await warnings(stage, *({**job, "spec": {**job["spec"], "typo": True}} for job in jobs.values()))
    for words in PROBES:
        said.append((await stage.kubectl.run(*words, "--dry-run=server", "-n", "default"))[1])
    return set(re.findall(r"ValidatingAdmissionPolicy '(\S+)'", "\n".join(said)))


async def warnings(stage: Stage, *jobs: Json) -> list[str]:
    """The warnings of the server if these jobs were created."""
    heard: list[str] = []
    async with HttpClient(load_kubeconfig({}, path=stage.plane.kubeconfig).rest_config, random.Random(1)) as http:
        http.on_warning(heard.append)
        for job in jobs:
            metadata = {**job["metadata"], "namespace": "default"}
            await http.dry_run_create(resource_of(job), {**job, "metadata": metadata})
    return heard


def has_unknown_fields(job: Json) -> bool:
    framework = framework_of(job["apiVersion"], job["kind"])
    assert framework is not None
    return bool(decode_and_validate(framework, job).unknown_fields)


async def test_an_unknown_field_is_named_to_kubectl_at_once_and_the_job_is_created(guarded: Stage) -> None:
    said = await guarded.kubectl("create", "--dry-run=server", "-n", "default", "-f", "-", stdin=json.dumps(TYPO))
    jobs = [job for path in SEEDS for job in jobs_in(path) if job["kind"] != "SharePod"]

    assert "typo created" in said
    assert [line.rpartition(": ")[2] for line in said.splitlines() if line.startswith("Warning:")] == TYPO_PATHS
    assert [bool(await warnings(guarded, job)) for job in jobs] == [has_unknown_fields(job) for job in jobs]


async def test_who_may_write_the_status_of_jobs_does_not_admit_or_finish_them(guarded: Stage) -> None:
    await guarded.submit("a", Worker=group(1))
    await guarded.kubectl("create", "clusterrolebinding", "repairs", "--clusterrole=tarragon-status-editor", "--user=r")
    patch = ("patch", "tfjob", "a", "--subresource=status", "--type=merge", "--as=r", "-p")
    await guarded.until_may("r", "patch", "tfjobs", "--subresource=status")

    assert await refused(guarded.kubectl, [*patch, FORGED], "only Tarragon's operator writes status.tarragon")
    await guarded.kubectl(*patch, HONEST)
    await guarded.kubectl("create", "clusterrolebinding", "admits", "--clusterrole=tarragon", "--user=r")
    await guarded.until_may("r", "admit", "tfjobs", "--subresource=status")
    await guarded.kubectl(*patch, FORGED)
    await guarded.kubectl("delete", "clusterrolebinding", "repairs", "admits")


async def test_the_operators_token_is_of_no_use_against_what_belongs_to_others(guarded: Stage) -> None:
    operator = Kubectl(await guarded.token())
    await guarded.kubectl("run", "theirs", "--image=i", "-n", "default")
    await guarded.kubectl("create", "configmap", "theirs", "--from-literal=a=b", "-n", "default")

    annotate = ("annotate", "pod", "theirs", "-n", "default", "a=b")
    configmap = ("annotate", "configmap", "theirs", "-n", "default", "a=b")
    for words in (annotate, configmap, ("delete", "pod", "theirs", "-n", "default", "--wait=false")):
        assert await refused(operator, words, "writes only objects that a job controls")
    assert await refused(operator, ("exec", "-n", "default", "theirs", "--", "id"), "runs no commands in pods")
    await guarded.kubectl("delete", "configmap", "theirs", "-n", "default")


async def refused(kubectl: Kubectl, words: Sequence[str], why: str) -> bool:
    code, said = await kubectl.run(*words)
    assert (code, "orbidden" in said, why in said) == (1, True, True), said
    return True
