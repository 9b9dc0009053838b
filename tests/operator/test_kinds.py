"""Two kinds that are called alike, one of which a cluster may not have."""

from __future__ import annotations

import random
from typing import Any

from structlog.testing import capture_logs

from tarragon.client.errors import Forbidden
from tarragon.client.informer.cache_reader import CacheError
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, Selector
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import Stage, group

TFJOBS_OF_2017 = MLKUBE.resource


def of_2017(name: str, runtime_id: str) -> dict[str, Any]:
    template = group(1)["template"]
    return {
        "apiVersion": "mlkube.io/v1beta1",
        "kind": "TfJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"RuntimeId": runtime_id, "replicaSpecs": [{"tfReplicaType": "MASTER", "template": template}]},
    }


async def phase(stage: Stage, name: str) -> str:
    found = await stage.world.client.get(TFJOBS_OF_2017, Key("default", name))
    return str((found.status or {}).get("phase", ""))


async def test_an_operator_without_the_older_kind_works_and_keeps_its_jobs_as_soon_as_it_is_there(
    stage: Stage,
) -> None:
    await stage.node("n")
    with capture_logs() as logs:
        stage.start_operator()
        await stage.submit("a", Worker=group(1))
        await stage.until_pods("a-worker-0")
        await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, MLKUBE.crd())
        await stage.world.client.create(TFJOBS_OF_2017, of_2017("b", "ab12"))
        await stage.until_pods("a-worker-0", "master-ab12-0")

    about = [line for line in logs if "mlkube" in str(line)]
    assert [(line["log_level"], line["kind"]) for line in about if line["event"].startswith("not installed")] == [
        ("info", "tfjobs.mlkube.io")
    ]
    assert not [line for line in about if line["log_level"] in {"warning", "error"}]


class OldRole(DelegatingClient):
    """The stage's API, as it is for an operator whose role knows nothing of the older kind."""

    async def list(self, resource: Any, selection: Selector = ALL_OBJECTS) -> Any:
        if resource.group == TFJOBS_OF_2017.group:
            message = 'tfjobs.mlkube.io is forbidden: User "tarragon" cannot list resource "tfjobs"'
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": message})
        return await super().list(resource, selection)


async def test_a_role_that_knows_nothing_of_the_older_kind_is_told_once_and_is_no_fault(stage: Stage) -> None:
    await stage.node("n")
    cluster = OldRole(stage.world.client)
    with capture_logs() as logs:
        stage.start(Operator(cluster, stage.world.clock, OperatorOptions(seed=1)).run())
        await stage.submit("a", Worker=group(1))
        await stage.until_pods("a-worker-0")

    about = [line for line in logs if "mlkube" in str(line)]
    assert [(line["log_level"], line["event"]) for line in about] == [
        ("info", "reading is forbidden: jobs of this kind, or that need it, wait until the operator's role allows it")
    ]


async def test_a_role_that_is_taken_away_from_whoever_keeps_jobs_of_the_kind_is_a_fault(stage: Stage) -> None:
    await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, MLKUBE.crd())
    world = Informers(stage.world.client, FRAMEWORKS, stage.world.clock, OperatorSettings(), random.Random(1))
    error = Forbidden({"code": 403, "reason": "Forbidden", "message": "tfjobs.mlkube.io is forbidden"})
    trouble = CacheError(resource=TFJOBS_OF_2017.full_name, error=error, retry_after=1)
    jobs = world.jobs[MLKUBE.kind]

    assert world.is_expected_error(trouble)
    stage.start(jobs.run())
    await jobs.wait_for_sync()
    assert not world.is_expected_error(trouble)


async def test_jobs_of_one_name_and_both_kinds_leave_each_other_alone(stage: Stage) -> None:
    await stage.node("n")
    await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, MLKUBE.crd())
    stage.start_operator()
    await stage.submit("a", Worker=group(1))
    await stage.world.client.create(TFJOBS_OF_2017, of_2017("a", "ab12"))
    await stage.until_pods("a-worker-0", "master-ab12-0")
    await stage.all_run("a-worker-0", "master-ab12-0")

    owners = {name: pod["metadata"]["ownerReferences"][0] for name, pod in stage.pods().items()}
    assert {name: (owner["apiVersion"], owner["kind"], owner["name"]) for name, owner in owners.items()} == {
        "a-worker-0": ("kubeflow.org/v1", "TFJob", "a"),
        "master-ab12-0": ("mlkube.io/v1beta1", "TfJob", "a"),
    }
    await stage.plays("master-ab12-0", "Succeeded", 0)
    await stage.world.until(lambda: not {"master-ab12-0"} & set(stage.services()))
    assert await phase(stage, "a") == "Done"
    await stage.until_state("a", "Running")
    assert "deletionTimestamp" not in stage.pods()["a-worker-0"]["metadata"]


def test_a_cluster_may_lack_every_kind_but_tfjob() -> None:
    assert [framework for framework in FRAMEWORKS if not framework.is_crd_optional] == [TENSORFLOW]
