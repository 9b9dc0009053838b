from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tarragon.client.errors import NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, NODES, PODS, SERVICES
from tarragon.kube.meta import Key, Resource
from tests.deploy.stage import unvalidated
from tests.e2e.user import eventually
from tests.real.scene import connect, until_served
from tests.real.site import Site, a_site
from tools.controlplane import ControlPlane, Release

KINDS = (TENSORFLOW, MLKUBE, SHAREPOD)
OF_A_TEST: tuple[Resource[Any], ...] = (
    *(kind.resource.with_model(dict) for kind in KINDS),
    *(each.with_model(dict) for each in (PODS, SERVICES, LEASES, EVENTS, NODES)),
)
"""What a test leaves, in the order in which it goes."""
ITS_OWN = {("default", "kubernetes")}
"""The Service that a control plane makes for itself."""

VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: models}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: %s}
"""


@pytest.fixture
def site(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with a_site(own_control_plane, tmp_path) as site:
        site.kubectl("create", "-f", "deploy/crd-tfjobs.kubeflow.org.yaml", *unvalidated(own_control_plane))
        eventually(lambda: site.serves("tfjobs.kubeflow.org"))
        site.kubectl("create", "-f", "-", given=VOLUME % site.models)
        site.operator()
        yield site


@pytest.fixture(scope="session")
def control_plane_with_kinds(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane.start(tmp_path_factory.mktemp("with-kinds"), release)
    asyncio.run(_install(plane))
    yield plane
    plane.stop()


@pytest.fixture
def emptied_control_plane(control_plane_with_kinds: ControlPlane) -> Iterator[ControlPlane]:
    """A real one that has our kinds, and otherwise looks as new: it is emptied after each test, its audit log too.

    A test may do in it what it likes, but break it and leave objects of other kinds.
    """
    yield control_plane_with_kinds
    asyncio.run(_empty(control_plane_with_kinds))
    control_plane_with_kinds.forget_audit()


async def _install(plane: ControlPlane) -> None:
    async with connect(plane.kubeconfig) as http:
        for kind in KINDS:
            await http.create(CUSTOM_RESOURCE_DEFINITIONS, kind.crd())
        for kind in KINDS:
            await until_served(http, kind.resource)


async def _empty(plane: ControlPlane) -> None:
    async with connect(plane.kubeconfig) as http, asyncio.timeout(60):
        for resource in OF_A_TEST:
            while left := await _left(http, resource):
                await asyncio.gather(*(_delete(http, resource, key) for key in left))


async def _delete(http: HttpClient, resource: Resource[Any], key: Key) -> None:
    with suppress(NotFound):
        await http.delete(resource, key, DeleteOptions(grace_period_seconds=0, propagation_policy="Background"))


async def _left(http: HttpClient, resource: Resource[Any]) -> list[Key]:
    found = (await http.list(resource)).items
    keys = [Key(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found]
    return [key for key in keys if (key.namespace, key.name) not in ITS_OWN and key.namespace != "kube-system"]
