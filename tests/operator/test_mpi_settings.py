"""What the operator's own settings mean for MPIJobs: sizes of v1alpha1, and the image that kubectl comes from."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import Unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.manager.own_image import OwnImage, read_own_image
from tarragon.plan.objects.settings import OperatorSettings
from tests.frameworks.mpi_jobs import V1, V2BETA1, Json, mpijob, short_job
from tests.operator.mpi_stage import LAUNCHER, MPIJOBS, MpiStage
from tests.operator.stage import Stage
from tests.operator.test_process import a_process

FOUR = {"gpusPerNode": 4, "processingUnitsPerNode": 2, "processingResourceType": "cpu"}
SHORT = MPIJOBS.with_model(dict)


@pytest.fixture
async def configured(stage: Stage) -> MpiStage:
    """An operator whose options set the size of a node."""
    mpi = MpiStage(stage)
    await mpi.install()
    settings = OperatorSettings(job_defaults={"MPIJob": FOUR})
    options = OperatorOptions(seed=1, settings=settings)
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())
    return mpi


async def submit(mpi: MpiStage, **spec: Any) -> Json:
    """Submit a job of v1alpha1, and return its spec as the operator has recorded it."""
    manifest = short_job(**spec)
    metadata = {**manifest["metadata"], "namespace": "default"}
    await mpi.world.client.create(SHORT, {**manifest, "apiVersion": V2BETA1, "metadata": metadata})
    await mpi.world.until(lambda: "tarragon" in mpi.job.get("status", {}))
    recorded: Json = mpi.job["spec"]
    return {name: value for name, value in recorded.items() if name != "template"}


async def test_a_new_job_of_v1alpha1_gets_the_size_of_a_node_from_the_operators_options(configured: MpiStage) -> None:
    assert await submit(configured, gpus=8) == {"gpus": 8, "gpusPerNode": 4, "processingResourceType": "cpu"}

    await configured.stage.until_pods("pi-worker-0", "pi-worker-1")
    assert configured.config["hostfile"] == "pi-worker-0 slots=4\npi-worker-1 slots=4\n"


async def test_processing_units_have_a_size_of_their_own(configured: MpiStage) -> None:
    recorded = await submit(configured, processingUnits=4)

    assert (recorded["processingUnitsPerNode"], "gpusPerNode" in recorded) == (2, False)


async def test_a_size_that_the_job_states_in_any_spelling_is_kept(configured: MpiStage) -> None:
    assert await submit(configured, gpus=2, GPUsPerNode=1, processingResourceType="nvidia.com/gpu") == {
        "gpus": 2,
        "GPUsPerNode": 1,
        "processingResourceType": "nvidia.com/gpu",
    }


async def create_pod(stage: Stage, key: Key, *containers: Json) -> None:
    metadata = {"name": key.name, "namespace": key.namespace}
    await stage.world.client.create(
        PODS.with_model(dict), {"metadata": metadata, "spec": {"containers": [*containers]}}
    )


async def test_kubectl_comes_from_the_image_of_the_operators_own_pod(stage: Stage) -> None:
    mpi, own = MpiStage(stage), Key("default", "tarragon-0")
    await mpi.install()
    await create_pod(
        stage, own, {"name": "mesh", "image": "mesh"}, {"name": "operator", "image": "registry/tarragon:9"}
    )

    async with a_process(stage, "a", own_pod=own):
        await mpi.submit(mpijob(V1, workers=1))
        await stage.until_pods("tarragon-0", "pi-worker-0")
        await mpi.runs("pi-worker-0")
        await stage.until_pods("tarragon-0", "pi-worker-0", LAUNCHER)

    (delivery,) = stage.pods()[LAUNCHER]["spec"]["initContainers"]
    assert delivery["image"] == "registry/tarragon:9"


async def test_without_its_own_pod_the_operator_keeps_the_image_of_its_settings(stage: Stage) -> None:
    assert await read_own_image(stage.world.client, stage.world.clock, Key("default", "gone")) is None


class Unreachable(DelegatingClient):
    """An API server that does not answer the first request."""

    answers = False

    async def get(self, resource: Any, key: Key) -> Any:
        if not self.answers:
            self.answers = True
            raise Unavailable({"code": 503, "reason": "ServiceUnavailable", "message": "busy"})
        return await super().get(resource, key)


async def test_the_own_image_is_read_again_when_the_server_was_busy(stage: Stage) -> None:
    own = Key("default", "tarragon-0")
    await create_pod(stage, own, {"name": "operator", "image": "t:1"})

    assert await read_own_image(Unreachable(stage.world.client), stage.world.clock, own) == OwnImage("t:1", [])
