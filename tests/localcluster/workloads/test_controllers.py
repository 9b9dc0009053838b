"""The controllers on the API itself, with pods that only seem to run, killed and started again."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tarragon.localcluster.controllers.garbage import GarbageCollector
from tarragon.localcluster.controllers.workloads.controllers import WorkloadControllers
from tarragon.localcluster.controllers.workloads.model import (
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
)
from tarragon.localcluster.controllers.workloads.pods import PODS
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tarragon.localcluster.registry.client import Binder
from tarragon.localcluster.scheduler.scheduler import Scheduler
from tests.localcluster.controllers.world import EmbeddedCluster, Json, a_world

LABELS = {"app": "web"}
SELECTOR = {"matchLabels": LABELS}


class Stage:
    """A world with two hollow nodes, whose controllers of workloads can be killed."""

    def __init__(self, world: EmbeddedCluster) -> None:
        self.world = world
        self._controllers: asyncio.Task[None] | None = None
        self._ends = itertools.count()

    def begin(self) -> None:
        controllers = WorkloadControllers(self.world.client, self.world.clock, random.Random(1))
        self._controllers = asyncio.create_task(controllers.run())

    async def kill(self) -> None:
        assert self._controllers is not None
        self._controllers.cancel()
        await asyncio.gather(self._controllers, return_exceptions=True)
        # Its last writes are on their way to the disk, and come before this one.
        await self.world.create(CONFIG_MAPS, f"end-{next(self._ends)}")

    def pods(self) -> list[Json]:
        return [thing for what, thing in self.world.objects.items() if what.startswith("pods/")]

    def status(self, kind: str, name: str) -> Json:
        status: Json = self.world.objects.get(f"{kind}/default/{name}", {}).get("status") or {}
        return status

    async def until(self, claim: Callable[[], bool]) -> None:
        await self.world.until(lambda: self._is_well() and claim())

    def _is_well(self) -> bool:
        if self._controllers is not None and self._controllers.done() and not self._controllers.cancelled():
            self._controllers.result()
        return True


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with a_stage(tmp_path) as made:
        yield made


@asynccontextmanager
async def a_stage(folder: Path) -> AsyncIterator[Stage]:
    async with a_world(folder) as world:
        for kind in (DEPLOYMENTS, REPLICA_SETS, JOBS):
            await world.follow(kind)
        world.start(HollowKubelet(world.client, HollowSettings(names=["n1", "n2"]), world.clock))
        world.start(Scheduler(world.client, Binder(world.api).bind, world.clock, world.jitter))
        world.start(GarbageCollector(world.client, world.kinds, world.clock, world.jitter))
        stage = Stage(world)
        stage.begin()
        yield stage
        await stage.kill()


def template(**annotations: str) -> Json:
    pod = {"containers": [{"name": "main", "image": "nothing:1"}]}
    return {"metadata": {"labels": LABELS, "annotations": annotations}, "spec": pod}


def brief(seconds: str = "0.05", **more: str) -> Json:
    """Of a job: its pods end by themselves."""
    notes = {"tarragon.dev/hollow-seconds": seconds, **{f"tarragon.dev/hollow-{k}": v for k, v in more.items()}}
    made = template(**notes)
    return {"metadata": {"annotations": notes}, "spec": {**made["spec"], "restartPolicy": "Never"}}


async def set_template(stage: Stage, resource: Resource[Any], **annotations: str) -> None:
    change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await stage.world.patch(resource.with_model(PartialObjectMetadata), "web", change)


async def test_controllers_that_are_killed_again_and_again_make_no_pod_twice(stage: Stage) -> None:
    spec = {"replicas": 40, "selector": SELECTOR, "template": template()}
    await stage.world.create(DEPLOYMENTS, "web", spec=spec)
    for _ in range(10):
        await stage.world.clock.sleep(0.01)
        await stage.kill()
        stage.begin()
    await stage.until(lambda: stage.status("deployments", "web").get("availableReplicas") == 40)

    made = [one for one in stage.world.happened if one.type == "ADDED" and one.what.startswith("pods/")]
    assert len(made) == 40


async def test_a_deployment_goes_back_to_a_template_that_it_had(stage: Stage) -> None:
    def is_out(revision: str) -> bool:
        status = stage.status("deployments", "web")
        notes = stage.world.objects["deployments/default/web"]["metadata"].get("annotations", {})
        counts = [status.get(field) for field in ("replicas", "updatedReplicas", "availableReplicas")]
        return counts == [3, 3, 3] and notes.get("deployment.kubernetes.io/revision") == revision

    await stage.world.create(
        DEPLOYMENTS, "web", spec={"replicas": 3, "selector": SELECTOR, "template": template(version="1")}
    )
    for revision, version in (("1", "1"), ("2", "2"), ("3", "1")):
        await set_template(stage, DEPLOYMENTS, version=version)
        await stage.until(lambda: is_out(revision))  # noqa: B023 - awaited within the turn

    assert len([what for what in stage.world.objects if what.startswith("replicasets/")]) == 2


async def test_pods_that_nobody_owns_are_taken_in_and_those_that_do_not_fit_any_more_let_go(stage: Stage) -> None:
    await stage.world.create(PODS, "stray", labels=LABELS, spec=template()["spec"])
    await stage.until(lambda: stage.status("pods", "stray").get("phase") == "Running")
    await stage.world.create(REPLICA_SETS, "web", spec={"replicas": 2, "selector": SELECTOR, "template": template()})
    await stage.until(lambda: stage.status("replicasets", "web").get("readyReplicas") == 2)
    assert len(stage.pods()) == 2

    await stage.world.patch(PODS, "stray", {"metadata": {"labels": {"app": "mine"}}})
    await stage.until(lambda: len(stage.pods()) == 3)

    owners = stage.world.objects["pods/default/stray"]["metadata"].get("ownerReferences")
    assert not owners


@pytest.mark.parametrize(
    ("namespace", "wrong"),
    [
        ("kube-system", {}),
        ("default", {"name": "other"}),
        ("default", {"kind": "Deployment"}),
        ("default", {"uid": "u"}),
    ],
    ids=["namespace", "name", "kind", "uid"],
)
async def test_a_pod_that_is_not_a_replica_sets_is_neither_counted_nor_deleted(
    stage: Stage, namespace: str, wrong: dict[str, str]
) -> None:
    spec = {"replicas": 0, "selector": SELECTOR, "template": template()}
    made = await stage.world.create(REPLICA_SETS, "web", spec=spec)
    # Of a group that is not served here: the garbage collector leaves it alone.
    owner = {"apiVersion": "nowhere.example/v1", "kind": "ReplicaSet", "name": "web", "uid": made.metadata.uid}
    owners = [{**owner, "controller": True, **wrong}]
    what = f"pods/{namespace}/forged"
    await stage.world.create(PODS, "forged", namespace=namespace, labels=LABELS, owners=owners, spec=template()["spec"])
    await stage.until(lambda: stage.world.objects.get(what, {}).get("status", {}).get("phase") == "Running")

    await stage.world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 2}})
    await stage.until(lambda: stage.status("replicasets", "web").get("readyReplicas") == 2)
    assert stage.status("replicasets", "web")["replicas"] == 2
    await stage.world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 0}})
    await stage.until(lambda: stage.status("replicasets", "web").get("replicas") == 0)

    assert len(stage.pods()) == 1
    assert "deletionTimestamp" not in stage.world.objects[what]["metadata"]


async def test_a_job_whose_controller_is_killed_counts_every_pod_once(stage: Stage) -> None:
    await stage.world.create(JOBS, "web", spec={"completions": 20, "parallelism": 5, "template": brief()})
    for _ in range(12):
        await stage.world.clock.sleep(0.03)
        await stage.kill()
        stage.begin()
    await stage.until(lambda: stage.status("jobs", "web").get("completionTime") is not None)

    assert stage.status("jobs", "web")["succeeded"] == 20
    assert len(stage.pods()) == 20


async def test_a_status_that_nobody_can_read_holds_up_no_other_workload(stage: Stage) -> None:
    odd = {"completions": 2, "completionMode": "Indexed", "template": brief("1000")}
    await stage.world.create(JOBS, "odd", spec=odd)
    await stage.until(lambda: stage.status("jobs", "odd").get("ready") == 1)
    await stage.world.client.patch(
        JOBS, Key("default", "odd"), {"status": {"completedIndexes": "odd"}}, subresource="status"
    )

    await stage.world.create(JOBS, "web", spec={"template": brief()})
    await stage.until(lambda: stage.status("jobs", "web").get("completionTime") is not None)


async def test_a_job_that_fails_says_why_and_its_pods_can_be_deleted_with_it(stage: Stage) -> None:
    await stage.world.create(JOBS, "web", spec={"backoffLimit": 0, "template": brief(**{"exit-code": "3"})})
    await stage.until(lambda: len(stage.status("jobs", "web").get("conditions") or []) == 2)
    conditions = stage.status("jobs", "web")["conditions"]
    assert [(one["type"], one["reason"]) for one in conditions] == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]

    await stage.world.delete(JOBS, "web", "Background")
    await stage.until(lambda: stage.pods() == [])


async def test_pods_of_a_job_that_is_deleted_while_they_run_go_with_it(stage: Stage) -> None:
    await stage.world.create(JOBS, "web", spec={"parallelism": 3, "template": brief("1000")})
    await stage.until(lambda: stage.status("jobs", "web").get("ready") == 3)

    await stage.world.delete(JOBS, "web", "Background")

    await stage.until(lambda: stage.pods() == [])
