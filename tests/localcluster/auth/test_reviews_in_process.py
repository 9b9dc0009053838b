"""Reviews that the cluster's own parts ask for, without HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError
from tarragon.kube.meta import Json, Resource
from tarragon.localcluster.auth.keys import SigningKey
from tarragon.localcluster.auth.reviews import reviews
from tarragon.localcluster.auth.service_account_tokens import TokenAuthority, TokenSpec
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tarragon.localcluster.registry.computed import ComputedKinds

TOKEN_REVIEWS: Resource[Json] = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    model=dict,
    namespaced=False,
)


async def test_a_token_is_reviewed_and_nothing_is_stored(tmp_path: Path) -> None:
    clock = FakeClock()
    api = await Api.open(tmp_path / "state.db", clock)
    try:
        accounts = TokenAuthority(api.committed_objects, SigningKey(tmp_path / "sa.key"), clock)
        client = InProcessCluster(api, computed=ComputedKinds(reviews(accounts)))
        account = api.target(("", "v1", "serviceaccounts"), "default")
        await api.create(account, {"metadata": {"name": "robot"}})
        token, _ = accounts.issue(TokenSpec(namespace="default", account="robot", audiences=("here",)))
        spec = {"token": token, "audiences": ["here"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}

        answer = await client.create(TOKEN_REVIEWS, body)
        with pytest.raises(ApiError):
            await client.create(TOKEN_REVIEWS, {**body, "spec": "none"})
    finally:
        await api.close()

    assert answer["status"]["authenticated"] is True
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:robot"
