"""Authentication over HTTP: tokens, impersonation, and reviews of who a user is and what they may do."""

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
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.port import Selector
from tarragon.kube.core import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.cluster import LocalCluster, LocalClusterSettings
from tarragon.localcluster.home.home import Home

Json = dict[str, Any]

REVIEWS = "/apis/authorization.k8s.io/v1"


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
async def opened(folder: Path) -> AsyncIterator[Door]:
    home = Home(folder)
    home.prepare()
    cluster = await LocalCluster.start(LocalClusterSettings(home=home), SystemClock())
    try:
        async with aiohttp.ClientSession() as session:
            yield Door(cluster, home, session)
    finally:
        await cluster.stop()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with opened(tmp_path / "home") as made:
        await made.cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})
        yield made


async def test_nobody_without_a_token_that_counts_is_let_in(door: Door) -> None:
    for token in ("", "wrong", "a.b.c", "é", "eyJhbGciOiJub25lIn0.e30."):
        code, answer = await door.ask("/api/v1/pods", token=token)

        assert (code, answer["message"], answer["reason"]) == (401, "Unauthorized", "Unauthorized"), token


async def test_the_owner_may_do_everything(door: Door) -> None:
    assert (await door.ask("/api/v1/secrets"))[0] == 200


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


async def test_every_authenticated_user_may_do_everything(door: Door) -> None:
    assert (await door.ask("/api/v1/secrets", token=await door.token("robot")))[0] == 200
    assert (await door.ask("/api/v1/secrets", user="ann"))[0] == 200
    assert (await door.ask("/api/v1/secrets", token="wrong"))[0] == 401


async def test_reviews_of_access_say_that_everything_is_allowed(door: Door) -> None:
    about = {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}
    bodies: dict[str, Json] = {
        "selfsubjectaccessreviews": {"spec": about},
        "subjectaccessreviews": {"spec": {**about, "user": "ann"}},
        "namespaces/default/localsubjectaccessreviews": {"spec": {**about, "user": "ann"}},
    }

    for place, body in bodies.items():
        code, answer = await door.ask(f"{REVIEWS}/{place}", method="POST", body=body, user="ann")
        assert (code, answer["spec"], answer["status"]) == (201, body["spec"], {"allowed": True}), place
    _, rules = await door.ask(f"{REVIEWS}/selfsubjectrulesreviews", method="POST", body={"spec": {"namespace": "a"}})
    assert rules["status"]["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


async def test_roles_are_stored_and_refuse_nothing(door: Door) -> None:
    groups = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    await door.ask(f"{groups}/roles", method="POST", body={"metadata": {"name": "looks"}, "rules": rules})
    code, _ = await door.ask(
        f"{groups}/rolebindings",
        method="POST",
        body={
            "metadata": {"name": "looks"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        },
    )

    _, stored = await door.ask(f"{groups}/roles/looks")
    assert (code, stored["rules"]) == (201, rules)
    assert (await door.ask("/api/v1/secrets", token=await door.token("robot")))[0] == 200


async def test_a_secret_for_an_account_is_filled_with_a_token_and_goes_with_the_account(door: Door) -> None:
    client, annotations = door.cluster.client, {"kubernetes.io/service-account.name": "robot"}
    body = {"metadata": {"name": "kept", "namespace": "default", "annotations": annotations}}
    await client.create(SECRETS, {**body, "type": "kubernetes.io/service-account-token"})
    token = ""
    async with asyncio.timeout(60):
        async for event in client.watch(SECRETS.with_model(dict), Selector(field_selector="metadata.name=kept"), "0"):
            filled: Json = event.object or {}
            if event.type == "DELETED":
                break
            if filled.get("data"):
                token = base64.b64decode(filled["data"]["token"]).decode()
                assert (await whoami(door, token=token))["username"] == "system:serviceaccount:default:robot"
                assert base64.b64decode(filled["data"]["ca.crt"]) in door.home.ca.read_bytes()
                await client.delete(SERVICE_ACCOUNTS, Key("default", "robot"))

    assert (await door.ask("/api/v1/pods", token=token))[0] == 401


async def test_an_account_is_known_after_the_server_was_started_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as door:
        await door.cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await door.cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "team"}})
        token = await door.token("robot", "team")

    async with opened(tmp_path / "home") as door:
        assert (await whoami(door, token=token))["username"] == "system:serviceaccount:team:robot"
        server = RestConfig(url=door.cluster.url, ca_data=door.home.ca.read_bytes(), token=token)
        async with HttpClient(server, random.Random(1)) as http:
            assert (await http.get(NAMESPACES, Key("", "default"))).metadata.name == "default"


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
