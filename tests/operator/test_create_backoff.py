"""What an API server refuses to make, and what becomes of the gang."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tarragon.client.errors import ApiError, Forbidden, error_from_status, unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.kube.core import CONFIG_MAPS, PODS
from tarragon.kube.meta import Key
from tarragon.operator.informers.create_backoff import CreateBackoff, is_rejected_by_server
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.view.actions import REFUSED, REFUSED_FOR_GATES
from tests.operator.stage import TFJOBS, Stage, group, job

GANG = {"a-ps-0", "a-worker-0", "a-worker-1"}


class Quota(DelegatingClient):
    """The stage's API, which lets a namespace have so many pods."""

    def __init__(self, stage: Stage, pods: int) -> None:
        super().__init__(stage.world.client)
        self.pods = pods
        self.refused = 0
        self._one_at_a_time = asyncio.Lock()

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural != PODS.plural:
            return await super().create(resource, body)
        async with self._one_at_a_time:
            if len((await super().list(PODS)).items) < self.pods:
                return await super().create(resource, body)
        self.refused += 1
        message = f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: q'
        raise Forbidden({"code": 403, "reason": "Forbidden", "message": message})


def operator(stage: Stage, quota: Quota, *, patience: float) -> asyncio.Task[None]:
    options = OperatorOptions(settings=OperatorSettings(creation_timeout=patience), seed=1)
    return asyncio.create_task(Operator(quota, stage.world.clock, options).run())


def gang(stage: Stage) -> dict[str, Any]:
    return {name: pod for name, pod in stage.pods().items() if name in GANG}


def ending(stage: Stage) -> bool:
    return any("deletionTimestamp" in pod["metadata"] for pod in stage.pods().values())


def has_made(stage: Stage, pods: int) -> bool:
    return len(stage.made()) == pods and bool(stage.pods())


async def test_a_gang_that_is_refused_gives_back_its_places_and_another_one_gets_them(stage: Stage) -> None:
    await stage.node("n", cpu="3")
    quota = Quota(stage, 2)
    keeper = operator(stage, quota, patience=0.5)
    await stage.submit("a", PS=group(1, cpu="1"), Worker=group(2, cpu="1"))
    await stage.world.until(lambda: bool(stage.events("Refused")))
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: stage.admission("a").get("wait", {}).get("code") == "Refused")
    assert "exceeded quota: q" in stage.admission("a")["wait"]["message"]
    assert "nodes" not in stage.admission("a")
    # It may be tried once more before the other one's turn.
    while set(stage.pods()) != {"b-worker-0"}:
        await stage.world.until(lambda: ending(stage) or set(stage.pods()) == {"b-worker-0"})
        await stage.end_pods()

    quota.pods = 10
    await stage.plays("b-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: set(stage.pods()) >= GANG)
    await stage.all_run(*GANG)
    await stage.until_state("a", "Running")
    assert all(condition["type"] != "Blocked" for condition in stage.job("a")["status"]["conditions"])
    await stage.world.until(lambda: "retry" not in stage.admission("a"))
    await stage.kill(keeper)


async def test_a_job_that_changes_all_the_time_is_not_refused_more_often_for_it(stage: Stage) -> None:
    await stage.node("n")
    quota = Quota(stage, 0)
    keeper = operator(stage, quota, patience=60)
    await stage.submit("a", Worker=group(1))
    await stage.world.until(lambda: bool(stage.events("Refused")))
    for number in range(20):
        note = {"metadata": {"annotations": {"note": str(number)}}}
        await stage.world.client.patch(TFJOBS, Key("default", "a"), note)
        await stage.world.until(
            lambda number=number: stage.job("a")["metadata"]["annotations"].get("note") == str(number)  # type: ignore[misc]
        )
    assert quota.refused <= 2
    await stage.kill(keeper)


async def test_of_an_elastic_gang_a_quota_leaves_out_the_last_ones(stage: Stage) -> None:
    await stage.node("n")
    keeper = operator(stage, Quota(stage, 4), patience=0.5)
    elastic: Any = {"min-instances": 1, "max-instances": 6}
    await stage.submit("a", PS=group(1), Worker=group(6), **elastic)
    names = {"a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2"}
    await stage.world.until(lambda: stage.admission("a").get("size") == {"PS": 1, "Worker": 3})
    assert set(stage.pods()) == names
    assert Counter(stage.made()) == Counter(names)
    await stage.kill(keeper)


@pytest.mark.parametrize("seed", range(3))
async def test_an_operator_that_dies_at_any_moment_gives_back_what_is_held_in_vain(stage: Stage, seed: int) -> None:
    moments = random.Random(seed)
    await stage.node("n", cpu="3")
    quota = Quota(stage, 2)
    await stage.submit("a", PS=group(1, cpu="1"), Worker=group(2, cpu="1"))
    for _ in range(15):
        keeper = operator(stage, quota, patience=0.01)
        for _ in range(moments.randrange(1, 300)):
            await asyncio.wait([keeper], timeout=0)
        await stage.end_pods()
        await stage.kill(keeper)
    quota.pods = 3
    keeper = operator(stage, quota, patience=30)
    while set(stage.pods()) != GANG or ending(stage):
        await stage.world.until(lambda: ending(stage) or set(stage.pods()) == GANG)
        await stage.end_pods()
    await stage.all_run(*GANG)
    await stage.until_state("a", "Running")
    await stage.kill(keeper)


async def test_a_pod_that_the_kubelet_refuses_is_made_anew_and_fails_no_job(stage: Stage) -> None:
    """Somebody else's pod was there first; restartPolicy Never is about the program, which has not run."""
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", Worker=group(1))
    await stage.until_pods("a-worker-0")
    first = stage.pods()["a-worker-0"]["metadata"]["uid"]
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    await stage.world.client.patch(PODS, Key("default", "a-worker-0"), {"status": status}, subresource="status")
    await stage.world.until(
        lambda: stage.pods().get("a-worker-0", {"metadata": {"uid": first}})["metadata"]["uid"] != first
    )

    assert stage.state("a") == "Starting"
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 0


def is_new_on(stage: Stage, node: str) -> bool:
    pods = stage.pods().values()
    return any(pod["spec"]["nodeName"] == node and pod["status"]["phase"] == "Pending" for pod in pods)


async def send_back(stage: Stage, node: str, pod: str) -> None:
    """What the kubelet of a node does that has no room for it, every time."""
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    while True:
        await stage.world.until(partial(is_new_on, stage, node))
        with contextlib.suppress(ApiError):
            await stage.world.client.patch(PODS, Key("default", pod), {"status": status}, subresource="status")


async def test_a_gang_that_a_node_does_not_take_looks_for_another_one(stage: Stage) -> None:
    """Our sums say that it fits: somebody has what they do not show, or counts otherwise."""
    await stage.node("full", cpu="1")
    keeper = operator(stage, Quota(stage, 10), patience=0.5)
    await stage.submit("a", Worker=group(1, cpu="1"))
    await stage.until_pods("a-worker-0")
    await stage.node("roomy", cpu="1")
    kubelet = asyncio.create_task(send_back(stage, "full", "a-worker-0"))
    await stage.world.until(lambda: [pod["spec"]["nodeName"] for pod in stage.pods().values()] == ["roomy"])

    await stage.world.until(lambda: bool(stage.events("NodeFull")))
    assert all("node full rejected worker-0: OutOfcpu" in told for told in stage.events("NodeFull"))
    await stage.kill(kubelet)
    await stage.kill(keeper)


def refusal(code: int, reason: str, message: str = "no") -> ApiError:
    return error_from_status({"code": code, "reason": reason, "message": message})


@pytest.mark.parametrize(
    "error",
    [
        refusal(403, "Forbidden", "exceeded quota"),
        refusal(422, "Invalid"),
        refusal(400, "BadRequest", 'admission webhook "p" denied the request'),
        refusal(418, "", 'admission webhook "p" denied the request'),
        refusal(413, "RequestEntityTooLarge"),
        refusal(404, "NotFound", 'namespaces "n" not found'),
        refusal(500, "InternalError", 'Internal error occurred: failed calling webhook "p": connection refused'),
    ],
)
def test_who_has_looked_at_it_and_said_no_is_not_asked_again_at_once(error: ApiError) -> None:
    assert is_rejected_by_server(error)


@pytest.mark.parametrize(
    "error",
    [
        unavailable("no answer"),
        refusal(500, "InternalError", "etcdserver: leader changed"),
        refusal(503, "ServiceUnavailable"),
        refusal(429, "TooManyRequests"),
        refusal(401, "Unauthorized"),
        refusal(409, "Conflict"),
    ],
)
def test_who_has_not_looked_at_it_is(error: ApiError) -> None:
    assert not is_rejected_by_server(error)


class OldRole(DelegatingClient):
    """The stage's API, as it is for an operator that may not make ConfigMaps."""

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == CONFIG_MAPS.plural:
            message = 'configmaps is forbidden: User "tarragon" cannot create resource "configmaps"'
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": message})
        return await super().create(resource, body)


async def test_a_job_whose_scripts_of_logs_are_refused_runs_and_says_that_its_logs_are_plain(stage: Stage) -> None:
    cluster = OldRole(stage.world.client)
    stage.start(Operator(cluster, stage.world.clock, OperatorOptions(seed=1)).run())
    await stage.node("n")
    body = job("a", Worker=group(1))
    body["metadata"]["annotations"] = {"tarragon.dev/logs": "json"}
    await stage.world.client.create(TFJOBS, body)
    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")
    await stage.world.until(lambda: bool(stage.events("FailedCreateConfigMap")))

    (told,) = set(stage.events("FailedCreateConfigMap"))
    assert told.startswith("configmaps is forbidden")
    assert told.endswith("; the job runs without it and logs plain text")


def test_that_a_webhook_adds_gates_is_known_until_the_job_is_deleted() -> None:
    backoff, key, now = CreateBackoff(), Key("default", "a"), dt.datetime(2026, 11, 26, tzinfo=dt.UTC)
    before = backoff.was_gated("TFJob", key)
    backoff.record_refusal("TFJob", key, (REFUSED_FOR_GATES, "cannot be set"), now)
    backoff.record_refusal("TFJob", key, (REFUSED, "exceeded quota"), now)
    backoff.reset("TFJob", key)
    known = [backoff.was_gated("TFJob", key), backoff.was_gated("TFJob", Key("default", "b"))]
    backoff.forget_job("TFJob", key)

    assert (before, known, backoff.was_gated("TFJob", key)) == (False, [True, False], False)
