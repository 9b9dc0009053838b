"""An unmodified helm finds the same on the embedded API as on a real control plane."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import NotFound
from tarragon.kube.core import CONFIG_MAPS, SECRETS, SERVICES
from tarragon.kube.meta import Key, Resource
from tests.helm.conftest import CHART, Helm

pytestmark = [pytest.mark.helm, pytest.mark.slow]

Json = dict[str, Any]
KITES = Resource(group="helm.example.com", version="v1", plural="kites", kind="Kite", model=dict)
NO_KITE = ("--set", "kite=false")


async def install(helm: Helm, *options: str) -> str:
    return await helm("install", "one", str(CHART), "--create-namespace", "--skip-crds", *NO_KITE, *options)


async def upgrade(helm: Helm, *options: str) -> str:
    return await helm("upgrade", "one", str(CHART), *NO_KITE, *options)


async def read(helm: Helm, resource: Resource[Any], name: str = "one") -> Json:
    return await helm.cluster.get(resource.with_model(dict), Key(helm.namespace, name))


async def is_there(helm: Helm, resource: Resource[Any]) -> bool:
    try:
        await read(helm, resource)
    except NotFound:
        return False
    return True


async def revisions(helm: Helm) -> list[tuple[int, str]]:
    return [(one["revision"], one["status"]) for one in await helm.json_output("history", "one")]


async def test_a_release_is_installed_listed_changed_taken_back_and_removed(helm: Helm) -> None:
    assert "It is red." in await install(helm, "--wait")
    (listed,) = await helm.json_output("list")
    assert (listed["name"], listed["status"], listed["chart"]) == ("one", "deployed", "things-0.1.0")

    await upgrade(helm, "--set", "colour=blue,secret=false")
    assert (await read(helm, CONFIG_MAPS))["data"]["colour"] == "blue"
    assert not await is_there(helm, SECRETS)

    assert await is_there(helm, SERVICES)
    await helm("rollback", "one", "1", "--wait")
    assert (await read(helm, CONFIG_MAPS))["data"]["colour"] == "red"
    assert await is_there(helm, SECRETS)
    assert await revisions(helm) == [(1, "superseded"), (2, "superseded"), (3, "deployed")]

    await helm("uninstall", "one", "--wait")
    assert await helm.json_output("list", "--all") == []
    assert not await is_there(helm, SERVICES)


async def test_an_upgrade_changes_what_the_chart_has_changed_and_nothing_else(helm: Helm) -> None:
    await install(helm)
    port = {"spec": {"ports": [{"name": "http", "port": 80}, {"name": "mine", "port": 7777}]}}
    await helm.cluster.patch(SERVICES, Key(helm.namespace, "one"), port)
    label: Json = {"metadata": {"labels": {"mine": "yes"}}, "data": {"mine": "too"}}
    await helm.cluster.patch(CONFIG_MAPS, Key(helm.namespace, "one"), label)

    await upgrade(helm, "--set", "port=81")

    ports = {one["name"]: one["port"] for one in (await read(helm, SERVICES))["spec"]["ports"]}
    config_map = await read(helm, CONFIG_MAPS)
    assert ports == {"http": 81, "mine": 7777}
    assert config_map["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm", "mine": "yes"}
    assert config_map["data"]["mine"] == "too"


async def test_a_chart_sees_what_is_there_and_which_server_it_is(helm: Helm) -> None:
    planned = await install(helm, "--dry-run=server")
    assert 'first: "true"' in planned

    await install(helm)
    await upgrade(helm)

    data = (await read(helm, CONFIG_MAPS))["data"]
    assert data["first"] == "false"
    assert int(data["minor"]) >= 20


async def test_a_chart_may_bring_its_kinds(helm: Helm) -> None:
    await helm("install", "one", str(CHART), "--create-namespace")
    await helm("upgrade", "one", str(CHART), "--set", "colour=blue")

    kite = await read(helm, KITES)
    assert kite["spec"] == {"colour": "blue", "tails": ["a", "b"]}
    await helm("uninstall", "one")
    assert not await is_there(helm, KITES)


async def test_a_kind_that_nobody_serves_is_told_by_its_name(helm: Helm) -> None:
    await install(helm)

    error = await helm.fails("upgrade", "one", str(CHART), *NO_KITE, "--set", "kind=Novelty")

    assert 'no matches for kind "Novelty" in version "v1"' in error


async def test_what_the_server_refuses_is_told_and_taken_back(helm: Helm) -> None:
    await install(helm)

    error = await helm.fails("upgrade", "one", str(CHART), *NO_KITE, "--set", "port=0,colour=blue", "--atomic")

    assert "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive" in error
    assert (await read(helm, CONFIG_MAPS))["data"]["colour"] == "red"
    assert [status for _, status in await revisions(helm)] == ["superseded", "failed", "deployed"]


async def test_releases_may_be_kept_in_config_maps(helm: Helm) -> None:
    helm.environment["HELM_DRIVER"] = "configmap"
    await install(helm)

    assert await is_there(helm, CONFIG_MAPS)
    kept = await read(helm, CONFIG_MAPS, "sh.helm.release.v1.one.v1")
    assert kept["metadata"]["labels"]["status"] == "deployed"
    await helm("uninstall", "one")
    assert await helm.json_output("list", "--all") == []
