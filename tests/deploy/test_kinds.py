"""What the API server itself knows of our kinds: rules in CEL, and fields to select by, where it is new enough."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarragon.client.errors import Invalid
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.frameworks.registry import framework_of
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.meta import Key, Resource
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.conftest import ROOT
from tests.conversion import manifests, mpijobs
from tests.deploy.stage import Stage, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]

RULES_SINCE, SELECTABLE_SINCE = 25, 31
SEEDS = [*(ROOT / "tests" / "data" / "manifests").glob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")]
POD = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
WORKER = {"Worker": {"replicas": 1, "template": POD}}


def of(replicas: int) -> Json:
    return {"replicas": replicas, "template": POD}


REJECTED: Mapping[str, tuple[str, str, Json]] = {
    "a TFJob of nothing": ("v1", "TFJob", {"runPolicy": {}}),
    "two names of one chief": ("v1", "TFJob", {"tfReplicaSpecs": {"Chief": of(1), "Master": of(1)}}),
    "two chiefs": ("v1", "TFJob", {"tfReplicaSpecs": {"Chief": of(2), **WORKER}}),
    "two masters": ("v1beta2", "TFJob", {"tfReplicaSpecs": {"Master": of(2), **WORKER}}),
    "two evaluators": ("v1", "TFJob", {"tfReplicaSpecs": {"Evaluator": of(2), **WORKER}}),
    "bounds of workers": ("v1", "TFJob", {"tfReplicaSpecs": WORKER, "min-instances": 3, "max-instances": 2}),
    "a JAXJob of nothing": ("v1", "JAXJob", {}),
    "an MPIJob of nothing": ("v2beta1", "MPIJob", {"slotsPerWorker": 1}),
    "two launchers": ("v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Launcher": of(2), **WORKER}}),
    "no launcher": ("v1", "MPIJob", {"mpiReplicaSpecs": {"Launcher": of(0), **WORKER}}),
    "bounds of MPI workers": (
        "v2beta1",
        "MPIJob",
        {"mpiReplicaSpecs": {"Launcher": of(1), **WORKER}, "elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
    ),
}


def resource_of(body: Json) -> Resource[Any]:
    framework = framework_of(body["apiVersion"], body["kind"])
    assert framework is not None
    return replace(framework.resource, version=body["apiVersion"].rpartition("/")[2]).with_model(dict)


async def asked(plane: ControlPlane, *bodies: Json) -> None:
    """Raises what the server would say if these jobs were created."""
    config = load_kubeconfig({}, path=plane.kubeconfig).rest_config
    async with HttpClient(config, random.Random(1)) as http:
        for body in bodies:
            metadata = {**body["metadata"], "namespace": "default"}
            await http.dry_run_create(resource_of(body), {**body, "metadata": metadata})


def jobs_in(path: Path) -> list[Json]:
    documents = yaml.safe_load_all(path.read_text())
    return [each for each in documents if each and framework_of(each.get("apiVersion", ""), each.get("kind", ""))]


def test_the_server_takes_every_manifest_that_we_were_given_or_give(installed: ControlPlane) -> None:
    jobs = [job for path in SEEDS for job in jobs_in(path)]

    assert len(jobs) > 10
    asyncio.run(asked(installed, *jobs))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    job=st.sampled_from(manifests.NAMES).flatmap(manifests.tfjobs)
    | st.sampled_from(mpijobs.NAMES).flatmap(mpijobs.mpijobs)
)
def test_the_server_takes_every_job_that_the_operator_takes(installed: ControlPlane, job: Json) -> None:
    if installed.minor < RULES_SINCE:
        pytest.skip("this server evaluates no rules")  # and takes empty text for null: kubernetes/kubernetes#99804
    asyncio.run(asked(installed, job))


@pytest.mark.parametrize("name", REJECTED)
def test_the_server_rejects_only_what_the_operator_would_refuse(installed: ControlPlane, name: str) -> None:
    version, kind, spec = REJECTED[name]
    body = {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    framework = framework_of(body["apiVersion"], kind)
    assert framework is not None
    assert decode_and_validate(framework, body).problems

    if installed.minor >= RULES_SINCE:
        with pytest.raises(Invalid, match=r"^\S+ \"a\" is invalid: spec: Invalid value"):
            asyncio.run(asked(installed, body))
    else:
        asyncio.run(asked(installed, body))


async def test_jobs_are_selected_by_their_state_and_their_queue(stage: Stage) -> None:
    await stage.submit("a", Worker=group(1), runPolicy={"suspend": True, "schedulingPolicy": {"queue": "red"}})
    await stage.submit("b", Worker=group(1))
    await stage.http.patch(
        TENSORFLOW.resource, Key("default", "b"), {"status": {"tarragon": {"state": "Running"}}}, subresource="status"
    )

    async def selected(by: str) -> tuple[int, list[str]]:
        code, out = await stage.kubectl.run("get", "tfjobs", "-o", "name", f"--field-selector={by}")
        return code, [line.rpartition("/")[2] for line in out.splitlines()]

    found = [
        await selected(by)
        for by in (
            "status.tarragon.state=Running",
            "spec.runPolicy.suspend=true",
            "spec.runPolicy.schedulingPolicy.queue=red",
            "spec.runPolicy.schedulingPolicy.queue!=red",
        )
    ]

    if stage.plane.minor >= SELECTABLE_SINCE:
        assert found == [(0, ["b"]), (0, ["a"]), (0, ["a"]), (0, ["b"])]
    else:
        assert [code for code, _ in found] == [1] * 4
