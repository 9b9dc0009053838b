"""Tokens of service accounts: whose they are, and when they count no more."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode
from tarragon.localcluster.api.user import HOME_OWNER
from tarragon.localcluster.auth.keys import SigningKey
from tarragon.localcluster.auth.service_account_tokens import (
    ISSUER,
    Authenticated,
    InvalidToken,
    TokenAuthority,
    TokenSpec,
)
from tarragon.localcluster.auth.token_requests import TokenRequests
from tarragon.localcluster.registry.api import Api

Json = dict[str, Any]


@dataclass
class Stage:
    """A cluster with the account `robot`, and nobody but its key between its tokens and the API."""

    api: Api
    accounts: TokenAuthority
    clock: FakeClock

    async def make(self, plural: str, name: str, **content: Any) -> Json:
        target = self.api.target(("", "v1", plural), "default")
        return decode((await self.api.create(target, {"metadata": {"name": name}, **content})).object, dict)

    async def remove(self, plural: str, name: str) -> None:
        await self.api.delete(self.api.target(("", "v1", plural), "default", name))

    async def request(self, name: str = "robot", **spec: Any) -> str:
        target = self.api.target(("", "v1", "serviceaccounts"), "default", name, "token")
        answer = await TokenRequests(self.accounts).create(target, {"spec": spec}, HOME_OWNER)
        return str(answer["status"]["token"])

    def whose(self, token: str) -> str:
        """The user's name, or why there is none."""
        judged = self.accounts.verify(token)
        return judged.user.name if isinstance(judged, Authenticated) else judged.why


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    clock = FakeClock()
    api = await Api.open(tmp_path / "state.db", clock)
    try:
        made = Stage(api, TokenAuthority(api.committed_objects, SigningKey(tmp_path / "sa.key"), clock), clock)
        await made.make("serviceaccounts", "robot")
        yield made
    finally:
        await api.close()


ROBOT = "system:serviceaccount:default:robot"
INVALIDATED = "[invalid bearer token, service account token has been invalidated]"


async def test_a_token_is_its_accounts_and_says_so_with_groups_and_uid(stage: Stage) -> None:
    judged = stage.accounts.verify(await stage.request())

    assert isinstance(judged, Authenticated)
    assert judged.user.name == ROBOT
    assert judged.user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    stored = stage.accounts.stored("serviceaccounts", "default", "robot")
    assert stored is not None
    assert judged.user.uid == stored["metadata"]["uid"]


async def test_a_token_counts_until_it_expires(stage: Stage) -> None:
    token = await stage.request(expirationSeconds=600)

    stage.clock.advance(599)
    before = stage.whose(token)
    stage.clock.advance(1)

    assert before == ROBOT
    assert "expired" in stage.whose(token)


async def test_a_token_of_an_account_that_was_made_anew_counts_no_more(stage: Stage) -> None:
    token = await stage.request()

    await stage.remove("serviceaccounts", "robot")
    gone = stage.whose(token)
    await stage.make("serviceaccounts", "robot")

    assert (gone, stage.whose(token)) == (INVALIDATED, INVALIDATED)


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
async def test_a_bound_token_counts_as_long_as_what_it_is_bound_to(stage: Stage, kind: str) -> None:
    plural = f"{kind.lower()}s"
    pod = {"spec": {"serviceAccountName": "robot", "containers": [{"name": "main", "image": "x"}]}}
    await stage.make(plural, "thing", **(pod if kind == "Pod" else {}))
    token = await stage.request(boundObjectRef={"kind": kind, "apiVersion": "v1", "name": "thing"})

    before = stage.whose(token)
    await stage.remove(plural, "thing")

    assert (before, stage.whose(token)) == (ROBOT, INVALIDATED)


async def test_a_pods_token_says_which_pod_uses_it(stage: Stage) -> None:
    containers = [{"name": "main", "image": "x"}]
    pod = await stage.make("pods", "thing", spec={"serviceAccountName": "robot", "containers": containers})

    judged = stage.accounts.verify(await stage.request(boundObjectRef={"kind": "Pod", "name": "thing"}))

    assert isinstance(judged, Authenticated)
    assert judged.user.extra["authentication.kubernetes.io/pod-name"] == ("thing",)
    assert judged.user.extra["authentication.kubernetes.io/pod-uid"] == (pod["metadata"]["uid"],)


async def test_a_token_for_somebody_else_is_none_for_the_api_server(stage: Stage) -> None:
    token = await stage.request(audiences=["vault", "mail"])

    elsewhere = stage.accounts.verify(token, ["mail", "web"])

    assert stage.whose(token) == (
        f'[invalid bearer token, token audiences ["vault" "mail"] is invalid for the target audiences ["{ISSUER}"]]'
    )
    assert isinstance(elsewhere, Authenticated)
    assert elsewhere.audiences == ("mail",)


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ({"expirationSeconds": 60}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**33}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}, 404, 'pods "none" not found'),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "a"}},
            400,
            "cannot bind token to object",
        ),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(stage: Stage, spec: Json, code: int, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        await stage.request(**spec)

    assert (caught.value.code, words in caught.value.status["message"]) == (code, True)


async def test_a_token_is_not_bound_to_another_accounts_pod(stage: Stage) -> None:
    await stage.make("pods", "thing", spec={"containers": [{"name": "main", "image": "x"}]})

    with pytest.raises(ApiError, match="different serviceaccount name"):
        await stage.request(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "thing"})


async def test_an_account_that_is_not_there_gets_no_token(stage: Stage) -> None:
    with pytest.raises(ApiError, match='serviceaccounts "nobody" not found'):
        await stage.request("nobody")


async def test_the_token_of_a_secret_counts_as_long_as_the_secret_has_it(stage: Stage) -> None:
    account = stage.accounts.stored("serviceaccounts", "default", "robot")
    assert account is not None
    token = stage.accounts.issue_for_secret("default", account["metadata"], "kept")
    nowhere = stage.whose(token)
    await stage.make("secrets", "kept", data={"token": base64.b64encode(token.encode()).decode()})
    kept = stage.whose(token)

    await stage.remove("secrets", "kept")

    assert (nowhere, kept, stage.whose(token)) == (INVALIDATED, ROBOT, INVALIDATED)


async def test_the_key_is_for_its_owner_alone_and_stays(stage: Stage, tmp_path: Path) -> None:
    token = await stage.request()
    again = TokenAuthority(stage.api.committed_objects, SigningKey(tmp_path / "sa.key"), stage.clock)
    other = TokenAuthority(stage.api.committed_objects, SigningKey(tmp_path / "other.key"), stage.clock)

    assert stat.S_IMODE((tmp_path / "sa.key").stat().st_mode) == 0o600
    assert isinstance(again.verify(token), Authenticated)
    assert other.verify(token) == InvalidToken("invalid bearer token")


async def test_a_token_that_says_it_needs_no_signature_is_refused(stage: Stage) -> None:
    _, claims, signature = (await stage.request()).split(".")

    for algorithm in ("none", "HS256", "ES256", "RS256"):
        head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).decode().rstrip("=")
        assert stage.whose(f"{head}.{claims}.{signature}") == "invalid bearer token"
        assert stage.whose(f"{head}.{claims}.") == "invalid bearer token"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey(tmp_path_factory.mktemp("keys") / "sa.key")


@given(place=st.integers(min_value=0), letter=st.sampled_from("AZaz09-_.=é\udc80 "))
def test_no_changed_token_is_read(key: SigningKey, place: int, letter: str) -> None:
    token = key.sign({"sub": "a"})
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]

    read = key.read(changed)

    # The last letter of a part has bits that mean nothing.
    assert read is None or read == {"sub": "a"}


@given(st.text())
def test_nonsense_is_no_token(key: SigningKey, text: str) -> None:
    assert key.read(text) is None
    assert key.read(f"{text}.{text}.{text}") is None


async def test_what_a_request_asked_is_told_with_the_token(stage: Stage) -> None:
    target = stage.api.target(("", "v1", "serviceaccounts"), "default", "robot", "token")

    answer = await TokenRequests(stage.accounts).create(target, {"spec": {"expirationSeconds": 900}}, HOME_OWNER)

    assert answer["kind"] == "TokenRequest"
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 900, "boundObjectRef": None}
    assert answer["metadata"]["name"] == "robot"


async def test_a_grant_needs_an_account_that_is_there(stage: Stage) -> None:
    token, end = stage.accounts.issue(TokenSpec(namespace="default", account="robot", seconds=700))

    assert stage.whose(token) == ROBOT
    assert end == int(stage.clock.now().timestamp()) + 700
