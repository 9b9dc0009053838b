"""A chart whose pods run, with hooks that run before, after and beside: on the embedded cluster as on a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError, NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import Selector
from tarragon.kube.core import NAMESPACES, PODS, SECRETS
from tarragon.kube.meta import Key, Resource
from tests.helm.conftest import Helm
from tests.helm.places import on_a_real_one, on_the_embedded_cluster

pytestmark = [pytest.mark.helm, pytest.mark.slow]

Json = dict[str, Any]
CHART = Path(__file__).parent / "app"
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", model=dict)
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", model=dict)
WAITING = ("--wait", "--wait-for-jobs", "--timeout", "60s")


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster in which pods run, and the name of its node."""

    helm: Helm
    node: str

    async def chart(self, verb: str, *options: str) -> str:
        made = ("--create-namespace",) if verb == "install" else ()
        return await self.helm(verb, "one", str(CHART), "--set", f"node={self.node}", *made, *WAITING, *options)

    async def colours(self) -> list[str]:
        """Of the pods that run and are to go on."""
        pods = (await self.helm.cluster.list(PODS.with_model(dict), Selector(self.helm.namespace, "app=one"))).items
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return sorted(each["value"] for pod in staying for each in pod["spec"]["containers"][0]["env"][:1])

    async def read(self, resource: Resource[Any], name: str = "one") -> Json:
        found: Json = await self.helm.cluster.get(resource.with_model(dict), Key(self.helm.namespace, name))
        return found


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    home, user = tmp_path / "home", tmp_path / "user"
    home.mkdir()
    user.mkdir()
    if request.param == "real":
        site = on_a_real_one(request.getfixturevalue("control_plane"), home)
    else:
        site = on_the_embedded_cluster(home)
    async with site as (config, node):
        environment = {"HOME": str(user), "KUBECONFIG": str(config), "PATH": os.environ["PATH"]}
        async with HttpClient(load_kubeconfig({}, path=config).rest_config, random.Random(1)) as client:
            helm = Helm(client, f"app-{uuid.uuid4().hex[:8]}", environment)
            yield Place(helm, node)
            with contextlib.suppress(ApiError):
                await client.delete(NAMESPACES, Key("", helm.namespace))
                await emptied(client, helm.namespace)


async def emptied(client: HttpClient, namespace: str) -> None:
    """Its node must end its pods before it goes itself."""
    async with asyncio.timeout(60):
        while (await client.list(PODS, Selector(namespace))).items:
            await SystemClock().sleep(0.1)


async def test_a_chart_with_hooks_is_installed_tested_changed_taken_back_and_removed(place: Place) -> None:
    await place.chart("install")
    assert (await place.read(DEPLOYMENTS))["status"]["availableReplicas"] == 2
    assert (await place.read(JOBS, "one-1"))["status"]["succeeded"] == 1
    with pytest.raises(NotFound):  # a hook that has succeeded is deleted, as its policy says
        await place.read(JOBS, "one-pre-install")

    tested = await place.helm("test", "one", "--timeout", "60s")
    assert "Phase:          Succeeded" in tested

    await place.chart("upgrade", "--set", "colour=blue")
    assert await place.colours() == ["blue", "blue"]
    await place.helm("rollback", "one", "1", *WAITING)
    assert await place.colours() == ["red", "red"]

    await place.helm("uninstall", "one", "--wait", "--timeout", "60s")
    with pytest.raises(NotFound):
        await place.read(DEPLOYMENTS)
    with pytest.raises(NotFound):
        await place.read(SECRETS)


async def test_a_hook_that_fails_keeps_a_chart_from_being_installed(place: Place) -> None:
    options = ("--set", f"node={place.node},works=false", "--create-namespace")
    error = await place.helm.fails("install", "one", str(CHART), *options, *WAITING)

    assert "failed pre-install" in error
    assert "BackoffLimitExceeded" in error
    with pytest.raises(NotFound):
        await place.read(DEPLOYMENTS)
