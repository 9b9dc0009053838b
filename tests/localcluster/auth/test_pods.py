"""Pods and their service accounts: what is mounted into them, and that it works, in real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.port import Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.daemon.cluster import LocalCluster, LocalClusterSettings
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.node.machine import machine_capacity
from tarragon.localcluster.kubelet.node.node import NodeSettings

Json = dict[str, Any]
PODS: Resource[Json] = Resource(group="", version="v1", plural="pods", kind="Pod", model=dict, namespaced=True)
PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
ASK = """
import base64, json, os, ssl, urllib.request
place = os.environ["PLACE"]
server = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
trust = ssl.create_default_context(cafile=place + "/ca.crt")
token = open(place + "/token").read()
url = server + "/api/v1/namespaces/" + open(place + "/namespace").read() + "/pods"
asked = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
names = [pod["metadata"]["name"] for pod in json.load(opener.open(asked))["items"]]
assert names == ["asking"], names
assert os.stat(place + "/token").st_mode & 0o777 == 0o600
said = open(os.environ["VAULT"]).read().split(".")[1]
claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
assert claims["aud"] == ["vault"] and claims["exp"] - claims["iat"] == 1200, claims
assert claims["kubernetes.io"]["pod"]["name"] == "asking"
"""


@asynccontextmanager
async def running(folder: Path, *, has_node: bool = False) -> AsyncIterator[LocalCluster]:
    home = Home(folder / "home")
    home.prepare()
    node = NodeSettings(
        name="n",
        folder=home.nodes / "n",
        capacity=machine_capacity(home.nodes),
        port_registry=home.folder / "claimed-ports",
    )
    settings = LocalClusterSettings(home=home, nodes=[node] if has_node else [])
    cluster = await LocalCluster.start(settings, SystemClock())
    try:
        yield cluster
    finally:
        if has_node:
            await cluster.stop_pods()
        await cluster.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running(tmp_path) as made:
        yield made


async def created(cluster: LocalCluster, name: str = "p", **spec: Any) -> Json:
    body: Json = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "m", "image": "x"}]},
    }
    return await cluster.client.create(PODS, {**body, "spec": {**body["spec"], **spec}})


async def account(cluster: LocalCluster, name: str, **content: Any) -> None:
    await cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": "default"}, **content})


async def test_every_pod_has_the_token_of_its_account_mounted(cluster: LocalCluster) -> None:
    pod = await created(cluster, initContainers=[{"name": "first", "image": "x"}])

    volume = pod["spec"]["volumes"][0]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": PLACE}
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        assert container["volumeMounts"] == [mount]


async def test_a_pod_that_wants_no_token_has_none(cluster: LocalCluster) -> None:
    pod = await created(cluster, automountServiceAccountToken=False)

    assert "volumes" not in pod["spec"]
    assert "volumeMounts" not in pod["spec"]["containers"][0]


async def test_an_accounts_word_counts_where_the_pod_says_nothing(cluster: LocalCluster) -> None:
    await account(cluster, "shy", automountServiceAccountToken=False, imagePullSecrets=[{"name": "pull"}])

    silent = await created(cluster, "a", serviceAccountName="shy")
    asking = await created(cluster, "b", serviceAccountName="shy", automountServiceAccountToken=True)

    assert "volumes" not in silent["spec"]
    assert asking["spec"]["volumes"]
    assert silent["spec"]["imagePullSecrets"] == [{"name": "pull"}]


async def test_a_container_that_mounts_something_there_keeps_it(cluster: LocalCluster) -> None:
    own = {"name": "own", "mountPath": PLACE}
    containers = [{"name": "m", "image": "x", "volumeMounts": [own]}]

    pod = await created(cluster, containers=containers, volumes=[{"name": "own", "emptyDir": {}}])

    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["own"]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [own]


async def test_a_pod_of_an_account_that_does_not_exist_runs_without_a_token(cluster: LocalCluster) -> None:
    pod = await created(cluster, serviceAccountName="nobody")

    assert pod["spec"]["serviceAccountName"] == "nobody"
    assert "volumes" not in pod["spec"]


async def test_a_program_in_a_pod_uses_the_api_with_the_token_of_its_account(tmp_path: Path) -> None:
    async with running(tmp_path, has_node=True) as cluster:
        await account(cluster, "robot")
        container = {
            "name": "m",
            "image": "python",
            "command": [sys.executable, "-c", ASK],
            "env": [{"name": "PLACE", "value": PLACE}, {"name": "VAULT", "value": "/tokens/vault/token"}],
            "volumeMounts": [{"name": "own", "mountPath": "/tokens"}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        source = {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 1200, "path": "vault/token"}}
        volumes = [{"name": "own", "projected": {"sources": [source]}}]
        robots = {"serviceAccountName": "robot", "restartPolicy": "Never"}
        await created(cluster, "asking", containers=[container], volumes=volumes, **robots)

        ended = await until_ended(cluster, "asking")

    assert ended["status"]["phase"] == "Succeeded", ended["status"]["containerStatuses"][0]["state"]


async def until_ended(cluster: LocalCluster, name: str) -> Json:
    selection = Selector(namespace="default", field_selector=f"metadata.name={name}")
    async with asyncio.timeout(60):
        async for event in cluster.client.watch(PODS, selection, "0"):
            pod = event.object or {}
            if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
                return pod
    raise AssertionError("the watch has ended")


async def test_every_namespace_has_the_certificate_by_which_pods_know_the_server(cluster: LocalCluster) -> None:
    maps = CONFIG_MAPS.with_model(dict)
    await cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    found: set[str] = set()
    async with asyncio.timeout(60):
        async for event in cluster.client.watch(maps, Selector(field_selector="metadata.name=kube-root-ca.crt"), "0"):
            if event.object and event.object["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----"):
                found.add(event.object["metadata"]["namespace"])
            if {"default", "kube-system", "team"} <= found:
                break
    await cluster.client.patch(maps, Key("team", "kube-root-ca.crt"), {"data": {"ca.crt": "spoilt", "more": "x"}})
    async with asyncio.timeout(60):
        async for event in cluster.client.watch(maps, Selector("team"), "0"):
            if event.object and event.object["data"].get("ca.crt", "").startswith("-----BEGIN"):
                assert event.object["data"].keys() == {"ca.crt"}
                break
