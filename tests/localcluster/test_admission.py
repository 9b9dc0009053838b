"""What other objects have to say about a write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tarragon.client.errors import Forbidden
from tarragon.localcluster.api.requests import WriteOptions
from tests.localcluster.builders import CONFIG_MAPS, PODS, ApiClient, config_map, opened, pod

QUOTAS = ("", "v1", "resourcequotas")
CLAIMS = ("", "v1", "persistentvolumeclaims")

Json = dict[str, Any]


def quota(name: str = "small", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def wanting(name: str, requests: Json, limits: Json | None = None, **spec: Any) -> Json:
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return pod(name, containers=[{"name": "main", "image": "i", "resources": resources}], **spec)


async def used(asking: ApiClient, name: str = "small") -> Json:
    counted: Json = asking.get(QUOTAS, name)["status"]["used"]
    return counted


async def test_a_quota_counts_what_is_there_when_it_comes(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a"))

    await asking.create(QUOTAS, quota(hard={"configmaps": "5", "count/secrets": "1"}))

    assert asking.get(QUOTAS, "small")["status"] == {
        "hard": {"configmaps": "5", "count/secrets": "1"},
        "used": {"configmaps": "1", "count/secrets": "0"},
    }


async def test_a_quota_counts_what_comes_and_what_goes(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "5"}))
    await asking.create(CONFIG_MAPS, config_map("a"))
    await asking.create(CONFIG_MAPS, config_map("b"))
    await asking.delete(CONFIG_MAPS, "a")

    assert await used(asking) == {"configmaps": "1"}


async def test_of_many_creations_at_once_only_as_many_succeed_as_the_quota_has_room_for(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "3"}))

    outcomes = await asyncio.gather(
        *(asking.create(CONFIG_MAPS, config_map(f"c{number}")) for number in range(8)), return_exceptions=True
    )

    assert sum(isinstance(one, dict) for one in outcomes) == 3
    assert sum(isinstance(one, Forbidden) for one in outcomes) == 5
    assert await used(asking) == {"configmaps": "3"}


async def test_all_that_a_pod_exceeds_is_told_with_what_is_used_and_allowed(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"requests.cpu": "1", "memory": "1Gi", "pods": "9"}))
    await asking.create(PODS, wanting("a", {"cpu": "600m", "memory": "700Mi"}))

    with pytest.raises(Forbidden) as caught:
        await asking.create(PODS, wanting("b", {"cpu": "500m", "memory": "512Mi"}))

    assert str(caught.value).endswith(
        'pods "b" is forbidden: exceeded quota: small, requested: memory=512Mi,requests.cpu=500m, '
        "used: memory=700Mi,requests.cpu=600m, limited: memory=1Gi,requests.cpu=1"
    )


async def test_a_pod_must_say_what_a_quota_counts(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"requests.cpu": "1", "limits.memory": "1Gi"}))

    with pytest.raises(
        Forbidden, match=r"failed quota: small: must specify limits.memory for: main; requests.cpu for: main"
    ):
        await asking.create(PODS, pod("a"))


async def test_a_quota_counts_the_resources_of_a_pod_as_a_whole(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"requests.cpu": "4", "limits.memory": "4Gi"}))

    await asking.create(PODS, pod("a", resources={"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}))

    assert await used(asking) == {"requests.cpu": "3", "limits.memory": "2Gi"}


async def test_a_quota_counts_overhead_only_for_limits_that_the_pod_has(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"limits.cpu": "4", "limits.memory": "4Gi"}))

    overhead = {"cpu": "1", "memory": "1Gi"}
    await asking.create(PODS, wanting("a", {}, {"memory": "2Gi", "cpu": "0"}, overhead=overhead))

    assert await used(asking) == {"limits.cpu": "0", "limits.memory": "3Gi"}


async def test_a_pod_that_has_ended_makes_room(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"pods": "1", "requests.nvidia.com/gpu": "2"}))
    await asking.create(PODS, wanting("a", {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}))
    assert await used(asking) == {"pods": "1", "requests.nvidia.com/gpu": "2"}

    await asking.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, subresource="status")

    assert await used(asking) == {"pods": "0", "requests.nvidia.com/gpu": "0"}
    await asking.create(PODS, pod("b"))


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        ({"scopes": ["BestEffort"]}, "1"),
        ({"scopes": ["NotBestEffort"]}, "2"),
        ({"scopes": ["Terminating"]}, "1"),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, "1"),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                    ]
                }
            },
            "1",
        ),
    ],
)
async def test_a_quota_with_scopes_is_about_some_pods_only(asking: ApiClient, scope: Json, counted: str) -> None:
    await asking.create(QUOTAS, quota(hard={"pods": "9"}, **scope))

    await asking.create(PODS, pod("best"))
    await asking.create(PODS, wanting("burst", {"cpu": "1"}, activeDeadlineSeconds=60))
    await asking.create(PODS, wanting("high", {"cpu": "1"}, priorityClassName="system-node-critical"))

    assert await used(asking) == {"pods": counted}


async def test_claims_are_counted_by_size_and_by_class(asking: ApiClient) -> None:
    hard = {"requests.storage": "10Gi", "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}
    await asking.create(QUOTAS, quota(hard=hard))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}

    await asking.create(CLAIMS, {"metadata": {"name": "a"}, "spec": {**spec, "storageClassName": "fast"}})
    await asking.create(CLAIMS, {"metadata": {"name": "b"}, "spec": spec})

    assert await used(asking) == {
        "requests.storage": "8Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
    }
    with pytest.raises(Forbidden, match=r"requested: requests\.storage=4Gi, used: requests\.storage=8Gi"):
        await asking.create(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})


async def test_a_dry_run_is_refused_like_the_run_and_counts_nothing(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "1"}))
    await asking.create(CONFIG_MAPS, config_map("a"), dry_run=True)
    assert await used(asking) == {"configmaps": "0"}

    await asking.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(Forbidden):
        await asking.create(CONFIG_MAPS, config_map("b"), dry_run=True)


async def test_a_quota_holds_on_when_its_deletion_was_only_tried(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "1"}))
    await asking.create(CONFIG_MAPS, config_map("a"))

    await asking.api.delete(asking.target(QUOTAS, "small"), writing=WriteOptions(dry_run=True))

    with pytest.raises(Forbidden):
        await asking.create(CONFIG_MAPS, config_map("b"))


async def test_a_quota_that_is_gone_and_comes_again_counts_anew(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "1"}))
    await asking.delete(QUOTAS, "small")
    await asking.create(CONFIG_MAPS, config_map("a"))
    await asking.create(CONFIG_MAPS, config_map("b"))
    assert asking.names(QUOTAS) == []

    await asking.create(QUOTAS, quota(hard={"configmaps": "2"}))

    with pytest.raises(Forbidden):
        await asking.create(CONFIG_MAPS, config_map("c"))


async def test_a_raised_quota_lets_more_in(asking: ApiClient) -> None:
    await asking.create(QUOTAS, quota(hard={"configmaps": "1"}))
    await asking.create(CONFIG_MAPS, config_map("a"))

    await asking.patch(QUOTAS, "small", {"spec": {"hard": {"configmaps": "2"}}})

    await asking.create(CONFIG_MAPS, config_map("b"))
    assert await used(asking) == {"configmaps": "2"}


async def test_counts_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        await ApiClient(api).create(QUOTAS, quota(hard={"configmaps": "1"}))
        await ApiClient(api).create(CONFIG_MAPS, config_map("a"))

    async with opened(tmp_path / "store.db") as api:
        with pytest.raises(Forbidden, match="used: configmaps=1"):
            await ApiClient(api).create(CONFIG_MAPS, config_map("b"))
