"""Being let in by a real kube-apiserver, and following it through what happens to it."""

from __future__ import annotations

import asyncio
import json
import random
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tarragon.base.clock import SystemClock
from tarragon.client.errors import CredentialsError, Forbidden, ResourceExpired, Unauthorized, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import ClusterConfig, in_cluster_config, load_kubeconfig
from tarragon.client.http.transport import Request, Transport
from tarragon.client.informer.cache_reader import CacheError
from tarragon.client.informer.informer import Informer
from tarragon.client.port import ALL_OBJECTS, Selector
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import CONFIG_MAPS, EVENTS, NAMESPACES, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key, Resource
from tests.client.tunnel import Tunnel, tunnel
from tools.controlplane import API_SERVER, ControlPlane, Release

pytestmark = [pytest.mark.real, pytest.mark.both_releases]

Json = dict[str, Any]
CLOCK = SystemClock()
MAPS = CONFIG_MAPS.with_model(dict)
CLUSTER_ROLES = Resource(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterroles",
    kind="ClusterRole",
    model=dict,
    namespaced=False,
)
CLUSTER_ROLE_BINDINGS = Resource(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterrolebindings",
    kind="ClusterRoleBinding",
    model=dict,
    namespaced=False,
)
TOKEN_REVIEWS = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    model=dict,
    namespaced=False,
)


def connect(access: ClusterConfig) -> HttpClient:
    return HttpClient(access.rest_config, random.Random(1))


def config_of(plane: ControlPlane, *, cluster: Json | None = None, user: Json | None = None) -> Json:
    """The administrator's, changed."""
    config: Json = yaml.safe_load(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= cluster or {}
    if user is not None:
        config["users"][0]["user"] = user
    return config


def access_by(folder: Path, config: Json) -> ClusterConfig:
    path = folder / "changed.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return load_kubeconfig({"PATH": "/usr/bin:/bin"}, path=path)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await CLOCK.sleep(0.02)


async def until_allowed(http: HttpClient) -> None:
    """Roles hold a moment after they were given."""
    async with asyncio.timeout(60):
        while True:
            try:
                await http.list(MAPS, Selector("default"))
            except Forbidden:
                await CLOCK.sleep(0.02)
            else:
                return


@asynccontextmanager
async def namespace(http: HttpClient, name: str) -> AsyncIterator[str]:
    await http.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await http.delete(NAMESPACES, Key("", name))


def plugin(folder: Path, status: Json) -> Path:
    """A program that says who somebody is."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (folder / "answer").write_text(json.dumps(answer))
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\necho run >>{folder}/runs\ncat {folder}/answer\n")
    path.chmod(0o755)
    return path


def pair_of(path: Path) -> Json:
    """Of a user's kubeconfig, as an exec plugin would hand it out."""
    user = yaml.safe_load(path.read_text())["users"][0]["user"]
    return {
        "clientCertificateData": b64decode(user["client-certificate-data"]).decode(),
        "clientKeyData": b64decode(user["client-key-data"]).decode(),
    }


def asked_by(plane: ControlPlane, *users: str) -> list[str]:
    """Who of them asked, in order, by the audit log: a long answer is here before it is there."""
    return [name for event in plane.audit_events() if (name := event["user"]["username"]) in users]


async def test_a_client_certificate_from_an_exec_plugin_is_who_we_are_until_it_is_another(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    path = plugin(tmp_path, {**pair_of(control_plane.user("ann")), "expirationTimestamp": "2000-01-01T00:00:00Z"})
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": path.name, "interactiveMode": "Never"}
    user = {"exec": {**spec, "command": f"./{path.name}"}}
    async with connect(access_by(tmp_path, config_of(control_plane, user=user))) as http:
        with pytest.raises(Forbidden, match='User "ann" cannot list resource "namespaces"'):
            await http.list(NAMESPACES)

        plugin(tmp_path, pair_of(control_plane.user("bob", ["system:masters"])))
        listing = await http.list(NAMESPACES)
        await http.list(NAMESPACES)

    assert "default" in {each.metadata.name for each in listing.items}
    assert (tmp_path / "runs").read_text().splitlines() == ["run", "run"]

    await until(lambda: asked_by(control_plane, "ann", "bob") == ["ann", "bob", "bob"])


async def test_a_plugin_whose_certificate_is_nonsense_is_told_in_words(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    path = plugin(tmp_path, {"clientCertificateData": "no PEM", "clientKeyData": "neither"})
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}
    async with connect(access_by(tmp_path, config_of(control_plane, user={"exec": spec}))) as http:
        with pytest.raises(CredentialsError, match="the client certificate can't be used"):
            await http.list(NAMESPACES)


async def token_of(plane: ControlPlane, key: Key) -> str:
    """A new one, from the API that pods' tokens come from."""
    transport = Transport(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1), CLOCK)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    try:
        answer = await transport.call(
            Request(method="POST", path=SERVICE_ACCOUNTS.path(key.namespace, key.name, "token"), body=encode(body))
        )
    finally:
        await transport.close()
    token: str = decode(answer, dict)["status"]["token"]
    return token


async def token_of_no_use(plane: ControlPlane, admin: HttpClient, account: Key) -> str:
    """The account is there, but it is not the one that the token is of."""
    body = {"metadata": {"name": account.name, "namespace": account.namespace}}
    await admin.create(SERVICE_ACCOUNTS, body)
    token = await token_of(plane, account)
    await admin.delete(SERVICE_ACCOUNTS, account)
    await admin.create(SERVICE_ACCOUNTS, body)
    async with asyncio.timeout(60):  # a server may take a moment to know
        while (await admin.create(TOKEN_REVIEWS, {"spec": {"token": token}}))["status"].get("authenticated"):
            await CLOCK.sleep(0.1)
    return token


async def test_a_pods_token_is_renewed_while_it_is_in_use(control_plane: ControlPlane, tmp_path: Path) -> None:
    account = tmp_path / "serviceaccount"
    account.mkdir()
    address = urlsplit(control_plane.url)
    environment = {"KUBERNETES_SERVICE_HOST": address.hostname or "", "KUBERNETES_SERVICE_PORT": str(address.port)}
    async with (
        connect(load_kubeconfig({}, path=control_plane.kubeconfig)) as admin,
        namespace(admin, "rotating") as where,
    ):
        robot = Key(where, "robot")
        gone = await token_of_no_use(control_plane, admin, robot)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        subjects = [{"kind": "ServiceAccount", "name": robot.name, "namespace": where}]
        binding = {"metadata": {"name": "rotating-robot"}, "subjects": subjects, "roleRef": role}
        await admin.create(CLUSTER_ROLE_BINDINGS, binding)

        (account / "ca.crt").write_bytes(control_plane.folder.joinpath("ca.crt").read_bytes())
        (account / "namespace").write_text(where)
        (account / "token").write_text(gone)
        access = in_cluster_config(environment, folder=account)
        async with connect(access) as http:
            with pytest.raises(Unauthorized) as caught:
                await http.list(MAPS, Selector(access.namespace))
            assert gone not in str(caught.value)

            (account / "token").write_text(await token_of(control_plane, robot))
            await until_allowed(http)
            first = await http.list(MAPS, Selector(access.namespace))
            (account / "token").write_text("of no use")
            assert await http.list(MAPS, Selector(access.namespace)) is not None
        await admin.delete(CLUSTER_ROLE_BINDINGS, Key("", "rotating-robot"))

    assert [each["metadata"]["name"] for each in first.items] in ([], ["kube-root-ca.crt"])


async def test_a_plugin_whose_token_the_server_refuses_is_asked_once_more(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        connect(load_kubeconfig({}, path=control_plane.kubeconfig)) as admin,
        namespace(admin, "plugged") as where,
    ):
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": where}})
        path = plugin(tmp_path, {"token": "expired-long-ago"})
        spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}
        async with connect(access_by(tmp_path, config_of(control_plane, user={"exec": spec}))) as http:
            with pytest.raises(Unauthorized):
                await http.list(NAMESPACES)
            assert (tmp_path / "runs").read_text().splitlines() == ["run", "run"]

        async with connect(access_by(tmp_path, config_of(control_plane, user={"exec": spec}))) as http:
            # The first answer is the old one, from then on the new one.
            plugin(tmp_path, {"token": await token_of(control_plane, Key(where, "robot"))})
            (tmp_path / "answer").rename(tmp_path / "next")
            plugin(tmp_path, {"token": "expired-long-ago"})
            path.write_text(
                f"#!/bin/sh\ncat {tmp_path}/answer\nmv {tmp_path}/next {tmp_path}/answer 2>/dev/null || true\n"
            )
            with pytest.raises(Forbidden, match=f'User "system:serviceaccount:{where}:robot" cannot list'):
                await http.list(NAMESPACES)


async def test_the_servers_certificate_may_be_for_another_name(control_plane: ControlPlane, tmp_path: Path) -> None:
    good = config_of(control_plane, cluster={"tls-server-name": "kubernetes.default.svc"})
    async with connect(access_by(tmp_path, good)) as http:
        assert (await http.list(NAMESPACES)).items

    bad = config_of(control_plane, cluster={"tls-server-name": "elsewhere.example"})
    async with connect(access_by(tmp_path, bad)) as http:
        with pytest.raises(Unavailable, match=r"is not trusted: .*elsewhere\.example"):
            await http.list(NAMESPACES)


async def test_whoever_acts_as_somebody_else_may_do_what_that_one_may(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = config_of(control_plane)
    config["users"][0]["user"] |= {"as": "carol", "as-groups": ["nobodies"]}
    async with connect(access_by(tmp_path, config)) as http:
        with pytest.raises(Forbidden, match='User "carol" cannot list'):
            await http.list(NAMESPACES)


async def test_everything_goes_through_the_proxy_with_its_password(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with tunnel() as proxy:
        named = proxy.url.replace("http://", "http://me:pass@")
        for name in ("", "kubernetes.default.svc"):
            config = config_of(control_plane, cluster={"proxy-url": named, "tls-server-name": name})
            async with connect(access_by(tmp_path, config)) as http:
                listing = await http.list(NAMESPACES)
                events = http.watch(NAMESPACES, ALL_OBJECTS, listing.resource_version)
                waiting = asyncio.ensure_future(anext(events))
                async with namespace(http, f"proxied{len(name)}"):
                    assert (await waiting).type == "ADDED"
                await events.aclose()  # type: ignore[attr-defined]

        address = control_plane.url.removeprefix("https://")
        assert len(proxy.asked) >= 4
        for head in proxy.asked:
            assert head.startswith(f"CONNECT {address} HTTP/1.1\r\n")
            assert "Proxy-Authorization: Basic bWU6cGFzcw==\r\n" in head


def notice_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a connection has died, which in real life takes minutes."""
    monkeypatch.setattr("tarragon.client.http.client._SILENCE_SECONDS", 3.0)
    monkeypatch.setattr("tarragon.client.http.transport._RESPONSE_SECONDS", 3.0)


class Follower:
    """A cache that runs, what it told, and the troubles that it met."""

    def __init__(self, http: HttpClient, resource: Resource[Json], where: str) -> None:
        self.cache = Informer(http, resource, CLOCK, Selector(where), jitter=random.Random(1))
        self.seen_changes: list[tuple[str, str]] = []
        self.troubles: list[CacheError] = []
        self.cache.add_event_handler(self._hear)
        self.cache.on_error(self.troubles.append)

    def _hear(self, key: Key, old: Json | None, new: Json | None) -> None:
        if not key.name.startswith("kube-root"):
            what = "new" if old is None else "changed" if new is not None else "gone"
            self.seen_changes.append((what, key.name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cache.run())
        try:
            await self.cache.wait_for_sync()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def a_map(where: str, name: str) -> Json:
    return {"metadata": {"name": name, "namespace": where}}


def an_event(where: str, name: str) -> Json:
    involved = {"kind": "Pod", "namespace": where, "name": "a"}
    return {"metadata": {"name": name, "namespace": where}, "involvedObject": involved}


async def make(http: HttpClient, where: str, names: Iterable[str]) -> None:
    for name in names:
        await http.create(MAPS, a_map(where, name))


async def change_and_remove(http: HttpClient, where: str) -> None:
    """B changes, c goes, d comes, e is replaced."""
    await http.patch(MAPS, Key(where, "b"), {"data": {"x": "y"}})
    for name in "ce":
        await http.delete(MAPS, Key(where, name))
    await make(http, where, "de")


TOLD_OF_THAT = sorted([("changed", "b"), ("gone", "c"), ("new", "d"), ("gone", "e"), ("new", "e")])


@asynccontextmanager
async def through(proxy: Tunnel, access: ClusterConfig) -> AsyncIterator[HttpClient]:
    async with connect(replace(access, rest_config=replace(access.rest_config, proxy_url=proxy.url))) as http:
        yield http


async def test_changes_under_a_connection_that_died_without_a_word_are_told_once(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = load_kubeconfig({}, path=control_plane.kubeconfig)
    notice_soon(monkeypatch)
    async with (
        tunnel() as proxy,
        through(proxy, access) as http,
        connect(access) as admin,
        namespace(admin, "half-open") as where,
    ):
        await make(admin, where, "abc")
        follower = Follower(http, MAPS, where)
        async with follower.running():
            await make(admin, where, "e")
            await until(lambda: len(follower.seen_changes) == 4)  # the watch is open
            proxy.lose_connections()
            await change_and_remove(admin, where)
            await until(lambda: len(follower.seen_changes) == 9)

    assert sorted(follower.seen_changes[4:]) == TOLD_OF_THAT


async def test_calls_over_connections_that_died_without_a_word_fail_in_time_and_the_next_ones_work(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = load_kubeconfig({}, path=control_plane.kubeconfig)
    monkeypatch.setattr("tarragon.client.http.transport._RESPONSE_SECONDS", 3.0)
    async with tunnel() as proxy, through(proxy, access) as http:
        await http.list(NAMESPACES)
        proxy.lose_connections()
        with pytest.raises(Unavailable, match="did not respond in time"):
            await http.list(NAMESPACES)

        assert (await http.list(NAMESPACES)).items


@pytest.mark.slow
async def test_a_restart_of_the_api_server_that_forgets_its_history_hides_no_change(
    own_control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch cache begins anew: versions from before it are too old (410), and only a list tells what is gone."""
    access = load_kubeconfig({}, path=own_control_plane.kubeconfig)
    notice_soon(monkeypatch)
    async with tunnel() as proxy, through(proxy, access) as http, connect(access) as admin:
        await make(admin, "default", "abc")
        follower = Follower(http, MAPS, "default")
        async with follower.running():
            await make(admin, "default", "e")
            await until(lambda: len(follower.seen_changes) == 4)  # the watch is open
            proxy.lose_connections()
            await change_and_remove(admin, "default")
            own_control_plane.kill(API_SERVER)
            own_control_plane.restart(API_SERVER)
            await until(lambda: len(follower.seen_changes) >= 9)
            await make(admin, "default", "z")
            await until(lambda: ("new", "z") in follower.seen_changes)

    assert sorted(follower.seen_changes[4:]) == sorted([*TOLD_OF_THAT, ("new", "z")])
    assert any(isinstance(trouble.error, ResourceExpired) for trouble in follower.troubles)


@pytest.mark.slow
async def test_a_restart_of_the_api_server_under_a_watch_repeats_nothing(own_control_plane: ControlPlane) -> None:
    access = load_kubeconfig({}, path=own_control_plane.kubeconfig)
    async with connect(access) as http:
        await make(http, "default", "abc")
        follower = Follower(http, MAPS, "default")
        async with follower.running():
            await make(http, "default", "e")
            await until(lambda: len(follower.seen_changes) == 4)  # the watch is open
            own_control_plane.kill(API_SERVER)
            await until(lambda: bool(follower.troubles))
            own_control_plane.restart(API_SERVER)
            await change_and_remove(http, "default")
            await until(lambda: len(follower.seen_changes) >= 9)

    assert sorted(follower.seen_changes[4:]) == TOLD_OF_THAT


async def test_compaction_of_etcd_under_a_watch_hides_no_change(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Events, which the API server does not cache: a watch of them reads etcd's own history."""
    access = load_kubeconfig({}, path=control_plane.kubeconfig)
    notice_soon(monkeypatch)
    async with (
        tunnel() as proxy,
        through(proxy, access) as http,
        connect(access) as admin,
        namespace(admin, "compacted") as where,
    ):
        for name in "ab":
            await admin.create(EVENTS, an_event(where, name))
        follower = Follower(http, EVENTS.with_model(dict), where)
        async with follower.running():
            await admin.create(EVENTS, an_event(where, "c"))
            await until(lambda: len(follower.seen_changes) == 3)  # the watch is open
            proxy.lose_connections()
            await admin.delete(EVENTS, Key(where, "b"))
            await admin.create(EVENTS, an_event(where, "d"))
            control_plane.compact()
            await until(lambda: len(follower.seen_changes) >= 5)

    assert sorted(follower.seen_changes[:3]) == [("new", "a"), ("new", "b"), ("new", "c")]
    assert follower.seen_changes[3:] == [("gone", "b"), ("new", "d")]
    assert any(isinstance(trouble.error, ResourceExpired) for trouble in follower.troubles)


async def test_a_list_of_many_pages_is_whole_while_others_write(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarragon.client.http.client.PAGE", 7)
    async with (
        connect(load_kubeconfig({}, path=control_plane.kubeconfig)) as http,
        namespace(http, "paged") as where,
    ):
        names = [f"m{number:03}" for number in range(100)]
        await make(http, where, names)
        listing, *_ = await asyncio.gather(
            http.list(MAPS, Selector(where)), make(http, where, [f"other{number}" for number in range(20)])
        )

    listed = [each["metadata"]["name"] for each in listing.items if each["metadata"]["name"].startswith("m")]
    assert listed == names


async def test_a_page_of_a_list_that_etcd_has_forgotten_is_expired(own_control_plane: ControlPlane) -> None:
    plane = own_control_plane
    access = load_kubeconfig({}, path=plane.kubeconfig)
    transport = Transport(access.rest_config, random.Random(1), CLOCK)
    async with connect(access) as http, namespace(http, "forgotten") as where:
        await make(http, where, "abc")
        query = {"limit": "1"}
        page = decode(await transport.call(Request(method="GET", path=MAPS.path(where), query=query)), dict)
        await make(http, where, "d")
        plane.compact()
        # Its cache is asked first since Kubernetes 1.34.
        plane.kill(API_SERVER)
        await asyncio.to_thread(plane.restart, API_SERVER)
        query["continue"] = page["metadata"]["continue"]
        with pytest.raises(ResourceExpired):
            await transport.call(Request(method="GET", path=MAPS.path(where), query=query))
        await transport.close()


DROPPED = (
    rb'apiserver_(?:dropped_requests_total{request_kind="mutating"|'
    rb'request_total{code="429",[^}]*verb="POST"[^}]*)} (\d+)'
)
"""The metric of Kubernetes 1.20, and that of 1.37."""


@pytest.mark.slow
async def test_a_server_that_refuses_what_is_too_much_gets_everything_in_the_end(
    release: Release, tmp_path: Path
) -> None:
    limits = ["--enable-priority-and-fairness=false", "--max-requests-inflight=1", "--max-mutating-requests-inflight=1"]
    plane = ControlPlane.start(tmp_path / "narrow", release, full=False, arguments=limits)
    try:
        name = {"metadata": {"name": "maps"}}
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"]}]
        subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
        async with connect(load_kubeconfig({}, path=plane.kubeconfig)) as admin:
            await admin.create(CLUSTER_ROLES, {**name, "rules": rules})
            await admin.create(CLUSTER_ROLE_BINDINGS, {**name, "subjects": [subject], "roleRef": role})
        async with connect(load_kubeconfig({}, path=plane.user("ann"))) as http:
            await until_allowed(http)
            number = 0
            async with asyncio.timeout(60):
                while not dropped(plane):  # How many creates overlap depends on the machine.
                    await asyncio.gather(*(make(http, "default", [f"m{number + each}"]) for each in range(60)))
                    number += 60
            listing = await http.list(MAPS, Selector("default"))
    finally:
        plane.stop()

    assert len([each for each in listing.items if each["metadata"]["name"].startswith("m")]) == number


def dropped(plane: ControlPlane) -> int:
    """How many writes the API server has refused because there were too many."""
    return sum(int(found) for found in re.findall(DROPPED, plane.get("/metrics")))


@pytest.mark.parametrize("may_stream", [True, False], ids=["as the server can", "by pages"])
async def test_a_cache_begins_with_all_objects_and_goes_on_with_what_changes_later(
    control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    may_stream: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr("tarragon.client.http.client.PAGE", 2)
    async with (
        connect(load_kubeconfig({}, path=control_plane.kubeconfig)) as http,
        namespace(http, f"begins-{may_stream}".lower()) as where,
    ):
        monkeypatch.setattr(http, "_may_stream_lists", may_stream)
        await make(http, where, "abce")
        follower = Follower(http, MAPS, where)
        async with follower.running():
            assert sorted(follower.seen_changes) == [("new", name) for name in "abce"]
            await change_and_remove(http, where)
            await until(lambda: len(follower.seen_changes) == 9)

    assert sorted(follower.seen_changes[4:]) == TOLD_OF_THAT
    assert follower.troubles == []
