"""Who is let in, in whose name, and what they may ask: over HTTP, with roles in force."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import Forbidden
from tarragon.client.http.client import Http
from tarragon.client.http.transport import Server
from tarragon.client.port import Selection
from tarragon.kube.core import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key
from tarragon.localcluster.auth.authorizers import Authorization
from tarragon.localcluster.daemon.cluster import LocalCluster, Settings
from tarragon.localcluster.home.home import Home
from tests.access.both import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, binding, person, role, rule

Json = dict[str, Any]


@dataclass
class Door:
    cluster: LocalCluster
    home: Home
    session: aiohttp.ClientSession

    async def ask(
        self, path: str, *, method: str = "GET", token: str | None = None, body: Json | None = None, **named: str
    ) -> tuple[int, Any]:
        """With the owner's token, if none is given. `named` are headers of impersonation: `user="ann"`."""
        token = self.home.read_token() if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {f"Impersonate-{name.replace('_', '-')}": value for name, value in named.items()}
        request = self.session.request(method, f"{self.cluster.url}{path}", headers=headers, json=body, ssl=False)
        async with request as response:
            is_json = response.content_type.endswith("json")
            return response.status, await (response.json(content_type=None) if is_json else response.text())

    async def token(self, account: str, namespace: str = "default") -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        code, answer = await self.ask(path, method="POST", body={"spec": {}})
        assert code == 201, answer
        return str(answer["status"]["token"])


@asynccontextmanager
async def opened(folder: Path, authorization: Authorization) -> AsyncIterator[Door]:
    home = Home(folder)
    home.prepare()
    cluster = await LocalCluster.start(Settings(home=home, authorization=authorization), SystemClock())
    try:
        async with aiohttp.ClientSession() as session:
            yield Door(cluster, home, session)
    finally:
        await cluster.stop()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with opened(tmp_path / "home", Authorization.RBAC) as made:
        await made.cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})
        yield made


async def test_nobody_without_a_token_that_counts_is_let_in(door: Door) -> None:
    for token in ("", "wrong", "a.b.c", "é", "eyJhbGciOiJub25lIn0.e30."):
        code, answer = await door.ask("/api/v1/pods", token=token)

        assert (code, answer["message"], answer["reason"]) == (401, "Unauthorized", "Unauthorized"), token


async def test_the_owner_may_do_everything(door: Door) -> None:
    assert (await door.ask("/api/v1/secrets"))[0] == 200


async def test_a_service_account_may_do_what_its_roles_say_and_nothing_else(door: Door) -> None:
    client, robot = door.cluster.client, {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    await client.create(ROLES, role("reader", rule("list", "pods"), namespace="default"))
    await client.create(BINDINGS, binding("reader", "reader", robot, namespace="default", is_of_cluster=False))
    token = await door.token("robot")

    listed, _ = await door.ask("/api/v1/namespaces/default/pods", token=token)
    everywhere, answer = await door.ask("/api/v1/pods", token=token)

    assert (listed, everywhere) == (200, 403)
    assert answer["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:robot" cannot list resource "pods" in API group "" '
        "at the cluster scope"
    )
    assert answer["details"] == {"kind": "pods"}


REFUSALS = [
    ("GET", "/api/v1/namespaces/a/pods/p", 'pods "p" is forbidden: User "ann" cannot get resource "pods"'),
    ("GET", "/api/v1/pods?watch=true", 'pods is forbidden: User "ann" cannot watch resource "pods"'),
    ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", 'pods "p" is forbidden: User "ann" cannot list'),
    ("GET", "/api/v1/namespaces/a/pods/p/log", 'pods "p" is forbidden: User "ann" cannot get resource "pods/log"'),
    ("POST", "/api/v1/namespaces/a/pods", "cannot create resource"),
    ("PUT", "/api/v1/namespaces/a/pods/p", "cannot update resource"),
    ("PATCH", "/api/v1/namespaces/a/pods/p/status", 'cannot patch resource "pods/status"'),
    ("DELETE", "/api/v1/namespaces/a/pods/p", "cannot delete resource"),
    ("DELETE", "/api/v1/namespaces/a/pods", "cannot deletecollection resource"),
    ("GET", "/api/v1/namespaces/a", '"namespaces" in API group "" in the namespace "a"'),
    ("PUT", "/api/v1/namespaces/a/finalize", '"namespaces/finalize" in API group "" in the namespace "a"'),
    ("GET", "/api/v1/namespaces/a/pods/p/exec?command=ls", 'cannot get resource "pods/exec"'),
    ("POST", "/api/v1/namespaces/a/pods/p/exec?command=ls", 'cannot create resource "pods/exec"'),
    ("POST", "/api/v1/namespaces/a/pods/p/portforward", 'cannot create resource "pods/portforward"'),
    ("POST", "/api/v1/namespaces/a/pods/p/eviction", 'cannot create resource "pods/eviction"'),
    ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token", 'cannot create resource "serviceaccounts/token"'),
    ("GET", "/api/v1/namespaces/a/services/s/proxy/deep/path", 'cannot get resource "services/proxy"'),
    ("GET", "/apis/apps/v1/deployments", 'deployments.apps is forbidden: User "ann" cannot list'),
    ("GET", "/apis/no.such/v1/things", 'things.no.such is forbidden: User "ann" cannot list'),
    ("GET", "/metrics", 'forbidden: User "ann" cannot get path "/metrics"'),
    ("POST", "/version", 'forbidden: User "ann" cannot post path "/version"'),
    ("GET", "/", 'forbidden: User "ann" cannot get path "/"'),
]


async def test_what_is_refused_is_told_in_the_words_of_a_real_server(door: Door) -> None:
    for method, path, words in REFUSALS:
        code, answer = await door.ask(path, method=method, user="ann")

        assert (code, words in answer["message"]) == (403, True), answer["message"]


async def test_everybody_who_is_known_may_find_out_what_is_served(door: Door) -> None:
    for path in ("/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v3", "/version"):
        assert (await door.ask(path, user="ann"))[0] == 200, path


async def test_who_may_act_for_one_user_may_not_act_for_another(door: Door) -> None:
    client = door.cluster.client
    await client.create(CLUSTER_ROLES, role("as-ann", rule("impersonate", "users", names="ann")))
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    await client.create(CLUSTER_BINDINGS, binding("as-ann", "as-ann", robot))
    token = await door.token("robot")

    as_ann, about_ann = await door.ask("/api/v1/pods", token=token, user="ann")
    as_bob, about_bob = await door.ask("/api/v1/pods", token=token, user="bob")
    as_master, about_group = await door.ask("/api/v1/pods", token=token, user="ann", group="system:masters")

    assert (as_ann, as_bob, as_master) == (403, 403, 403)
    assert about_ann["message"].startswith('pods is forbidden: User "ann" cannot list')
    cannot = 'is forbidden: User "system:serviceaccount:default:robot" cannot impersonate resource'
    assert about_bob["message"] == f'users "bob" {cannot} "users" in API group "" at the cluster scope'
    assert about_group["message"] == f'groups "system:masters" {cannot} "groups" in API group "" at the cluster scope'


async def test_headers_that_name_a_group_and_no_user_are_an_error(door: Door) -> None:
    code, answer = await door.ask("/api/v1/pods", group="team")

    assert code == 500
    assert "without impersonating a user" in answer["message"]


async def whoami(door: Door, **named: str) -> Json:
    _, answer = await door.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", method="POST", body={}, **named)
    told: Json = answer["status"]["userInfo"]
    return told


async def test_one_is_told_who_one_is_taken_for(door: Door) -> None:
    owner = await whoami(door)
    ann = await whoami(door, user="ann", uid="7", Extra_scopes="view")
    robot = await whoami(door, user="system:serviceaccount:default:robot")

    assert owner == {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
    assert ann == {
        "username": "ann",
        "uid": "7",
        "groups": ["system:authenticated"],
        "extra": {"scopes": ["view"]},
    }
    assert robot["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]


async def test_a_review_of_a_token_tells_whose_it_is(door: Door) -> None:
    path, token = "/apis/authentication.k8s.io/v1/tokenreviews", await door.token("robot")

    _, known = await door.ask(path, method="POST", body={"spec": {"token": token}})
    _, unknown = await door.ask(path, method="POST", body={"spec": {"token": "x.y.z"}})

    assert known["status"]["authenticated"]
    assert known["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    assert unknown["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_others_can_check_tokens_by_what_is_published(door: Door) -> None:
    token = await door.token("robot")
    head = base64.urlsafe_b64decode(token.partition(".")[0] + "==")

    _, configuration = await door.ask("/.well-known/openid-configuration", token=token)
    _, keys = await door.ask("/openid/v1/jwks", token=token)

    assert configuration["issuer"] == "https://kubernetes.default.svc"
    assert configuration["jwks_uri"].endswith("/openid/v1/jwks")
    assert keys["keys"][0]["kid"] in head.decode()


async def test_the_default_roles_are_whole_again_after_a_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", Authorization.RBAC) as door:
        client = door.cluster.client
        await client.patch(
            CLUSTER_ROLES, Key("", "system:basic-user"), {"rules": [rule("get", "kites", "example.com")]}
        )
        await client.delete(CLUSTER_BINDINGS, Key("", "system:discovery"))
        await client.patch(
            CLUSTER_ROLES,
            Key("", "system:monitoring"),
            {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []},
        )

    async with opened(tmp_path / "home", Authorization.RBAC) as door:
        client = door.cluster.client
        basic = await client.get(CLUSTER_ROLES, Key("", "system:basic-user"))
        left_alone = await client.get(CLUSTER_ROLES, Key("", "system:monitoring"))

        assert (await door.ask("/apis", user="ann"))[0] == 200
        assert rule("get", "kites", "example.com") in basic["rules"]
        assert any("selfsubjectaccessreviews" in one["resources"] for one in basic["rules"])
        assert not left_alone.get("rules")


async def test_roles_of_one_label_become_part_of_the_role_that_is_made_of_them(door: Door) -> None:
    client = door.cluster.client
    kites = rule("get", "kites", "example.com")
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    await client.create(CLUSTER_ROLES, {"metadata": {"name": "kites", "labels": labels}, "rules": [kites]})
    await client.create(BINDINGS, binding("view", "view", person("ann"), namespace="default"))

    async with asyncio.timeout(60):
        selection = Selection(fields="metadata.name=edit")
        async for event in client.watch(CLUSTER_ROLES, selection, "0"):
            if event.object and kites in (event.object.get("rules") or []):  # edit is made of view, too
                break

    assert (await door.ask("/apis/example.com/v1/namespaces/default/kites/a", user="ann"))[0] == 404
    assert (await door.ask("/api/v1/namespaces/default/secrets", user="ann"))[0] == 403


async def test_where_everything_is_allowed_a_known_user_may_do_everything(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", Authorization.ALWAYS_ALLOW) as door:
        await door.cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})

        assert (await door.ask("/api/v1/secrets", token=await door.token("robot")))[0] == 200
        assert (await door.ask("/api/v1/secrets", user="ann"))[0] == 200
        assert (await door.ask("/api/v1/secrets", token="wrong"))[0] == 401


async def test_a_secret_for_an_account_is_filled_with_a_token_and_goes_with_the_account(door: Door) -> None:
    client, annotations = door.cluster.client, {"kubernetes.io/service-account.name": "robot"}
    body = {"metadata": {"name": "kept", "namespace": "default", "annotations": annotations}}
    await client.create(SECRETS, {**body, "type": "kubernetes.io/service-account-token"})
    token = ""
    async with asyncio.timeout(60):
        async for event in client.watch(SECRETS.reading(dict), Selection(fields="metadata.name=kept"), "0"):
            filled: Json = event.object or {}
            if event.type == "DELETED":
                break
            if filled.get("data"):
                token = base64.b64decode(filled["data"]["token"]).decode()
                assert (await whoami(door, token=token))["username"] == "system:serviceaccount:default:robot"
                assert base64.b64decode(filled["data"]["ca.crt"]) in door.home.ca.read_bytes()
                await client.delete(SERVICE_ACCOUNTS, Key("default", "robot"))

    assert (await door.ask("/api/v1/pods", token=token))[0] == 401


async def test_a_put_that_would_make_an_object_needs_what_a_create_needs(door: Door) -> None:
    client = door.cluster.client
    await client.create(CLUSTER_ROLES, role("updater", rule("update", "leases", "coordination.k8s.io")))
    await client.create(CLUSTER_BINDINGS, binding("updater", "updater", person("ann")))
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new"
    body = {"metadata": {"name": "new", "namespace": "default"}, "spec": {"holderIdentity": "a"}}

    code, answer = await door.ask(path, method="PUT", body=body, user="ann")

    assert code == 403
    assert 'cannot create resource "leases" in API group "coordination.k8s.io"' in answer["message"]


async def test_an_account_is_known_after_the_server_was_started_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", Authorization.RBAC) as door:
        await door.cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await door.cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "team"}})
        token = await door.token("robot", "team")

    async with opened(tmp_path / "home", Authorization.RBAC) as door:
        assert (await whoami(door, token=token))["username"] == "system:serviceaccount:team:robot"
        server = Server(url=door.cluster.url, ca_data=door.home.ca.read_bytes(), token=token)
        async with Http(server, random.Random(1)) as http:
            with pytest.raises(Forbidden, match='User "system:serviceaccount:team:robot" cannot get resource'):
                await http.get(NAMESPACES, Key("", "default"))


REVIEWS = "/apis/authorization.k8s.io/v1"
NONSENSE: list[tuple[str, Json]] = [
    (f"{REVIEWS}/subjectaccessreviews", {"spec": []}),
    (f"{REVIEWS}/subjectaccessreviews", {"spec": {"user": "a", "resourceAttributes": "x"}}),
    (f"{REVIEWS}/namespaces/default/localsubjectaccessreviews", {"spec": {"user": "a", "resourceAttributes": ["x"]}}),
    (f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": 7}}),
    ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": {"a": "b"}}}),
    ("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": "x"}),
    ("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {"expirationSeconds": "long"}}),
    ("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {"audiences": "a"}, "metadata": {}}),
    ("/api/v1/namespaces/default/serviceaccounts/robot/token", {"metadata": "x"}),
]


async def test_a_question_that_is_none_is_refused_in_words(door: Door) -> None:
    for path, body in NONSENSE:
        code, answer = await door.ask(path, method="POST", body=body)

        assert (code, "cannot be handled as a" in answer["message"]) == (400, True), answer["message"]
