"""An operator whose role lacks what only some kinds of jobs need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, Client, ObjectList, Selector
from tarragon.frameworks.mpi.framework import MPI
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import Stage, group

T = TypeVar("T")
Verb = tuple[str, str]
ALL_NAMESPACES = OperatorSettings()


class Restricted(DelegatingClient):
    """The stage's API for an operator whose role lacks some verbs, which tests may grant later."""

    def __init__(self, cluster: Client, *lacking: Verb) -> None:
        super().__init__(cluster)
        self.lacking = {*lacking}
        self.lists_all_of = ""
        """A namespace in which everything may be listed."""

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        if not self.lists_all_of or selection.namespace != self.lists_all_of:
            self._check("list", resource)
        return await super().list(resource, selection)

    async def get(self, resource: Resource[T], key: Key) -> T:
        self._check("get", resource)
        return await super().get(resource, key)

    async def create(self, resource: Resource[T], body: Mapping[str, Json]) -> T:
        self._check("create", resource)
        return await super().create(resource, body)

    def _check(self, verb: str, resource: Resource[Any]) -> None:
        if (verb, resource.plural) in self.lacking:
            message = f'{resource.plural} is forbidden: User "tarragon" cannot {verb} resource "{resource.plural}"'
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": message})


async def submit(stage: Stage, name: str, generation: str = "v2beta1") -> None:
    """Submit an MPIJob with one worker."""
    resource = MPI.resource.with_model(dict)
    annotations = {GENERATION_ANNOTATION: f"kubeflow.org/{generation}"}
    job = {
        "apiVersion": resource.api_version,
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"mpiReplicaSpecs": {"Launcher": group(1), "Worker": group(1)}},
    }
    await stage.world.client.create(resource, job)


@pytest.fixture
async def mpi(stage: Stage) -> Stage:
    """A cluster with a node, and with MPIJobs."""
    await stage.node("n")
    await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, MPI.crd())
    await stage.world.follow(MPI.resource.with_model(dict))
    return stage


def start(stage: Stage, *lacking: Verb, settings: OperatorSettings = ALL_NAMESPACES) -> Restricted:
    cluster = Restricted(stage.world.client, *lacking)
    options = OperatorOptions(seed=1, settings=settings)
    stage.start(Operator(cluster, stage.world.clock, options).run())
    return cluster


def blocked(stage: Stage, name: str) -> str:
    """The message of the MPIJob's condition Blocked."""
    found = stage.world.objects.get(f"mpijobs/default/{name}") or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((str(each["message"]) for each in conditions if each["type"] == "Blocked"), "")


async def test_without_leave_to_watch_host_files_only_the_jobs_that_have_them_wait_and_say_so(mpi: Stage) -> None:
    start(mpi, ("list", "configmaps"), ("list", "roles"))
    await submit(mpi, "m", "v1")
    await mpi.submit("a", Worker=group(1))

    await mpi.until_pods("a-worker-0")
    await mpi.all_run("a-worker-0")
    await mpi.until_state("a", "Running")
    await mpi.world.until(lambda: bool(blocked(mpi, "m")))
    assert blocked(mpi, "m") == (
        "the operator may not list and watch configmaps and roles.rbac.authorization.k8s.io; "
        "the job waits until its role allows it"
    )


async def test_a_job_that_needs_no_role_starts_without_leave_to_watch_roles(mpi: Stage) -> None:
    start(mpi, ("list", "roles"))
    await submit(mpi, "m")

    await mpi.until_pods("m-launcher", "m-worker-0")


async def test_a_job_starts_as_soon_as_the_operator_may_watch_its_host_file(mpi: Stage) -> None:
    cluster = start(mpi, ("list", "configmaps"))
    await submit(mpi, "m")
    await mpi.world.until(lambda: bool(blocked(mpi, "m")))

    cluster.lacking.clear()

    await mpi.until_pods("m-launcher", "m-worker-0")
    await mpi.world.until(lambda: not blocked(mpi, "m"))


async def test_a_job_does_not_wait_for_a_role_of_another_namespace(mpi: Stage) -> None:
    await mpi.world.client.create(NAMESPACES, {"metadata": {"name": "other"}})
    settings = OperatorSettings(namespaces=("default", "other"))
    cluster = start(mpi, ("list", "configmaps"), settings=settings)
    cluster.lists_all_of = "default"
    await submit(mpi, "m")

    await mpi.until_pods("m-launcher", "m-worker-0")


async def test_without_leave_to_create_keys_a_job_says_what_is_refused(mpi: Stage) -> None:
    start(mpi, ("create", "secrets"))
    await submit(mpi, "m")

    await mpi.world.until(lambda: bool(blocked(mpi, "m")))
    assert 'User "tarragon" cannot create resource "secrets"' in blocked(mpi, "m")


async def test_a_name_that_the_operator_may_not_look_up_is_told_to_the_job(mpi: Stage) -> None:
    metadata = {"name": "m-config", "namespace": "default"}
    await mpi.world.client.create(CONFIG_MAPS.with_model(dict), {"metadata": metadata})
    start(mpi, ("get", "configmaps"))
    await submit(mpi, "m")

    await mpi.world.until(lambda: bool(blocked(mpi, "m")))
    assert 'User "tarragon" cannot get resource "configmaps"' in blocked(mpi, "m")
