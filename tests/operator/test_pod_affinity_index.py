"""Rules between pods, as the operator keeps them: with pods of others, that come and go."""

from __future__ import annotations

from typing import Any

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tests.operator.stage import Stage, group

HOST = "kubernetes.io/hostname"
Json = dict[str, Any]


async def nodes(stage: Stage, *names: str, **labels: str) -> None:
    for name in names:
        await stage.node(name)
        await stage.world.client.patch(NODES, Key("", name), {"metadata": {"labels": {HOST: name, **labels}}})


async def other(stage: Stage, name: str, on: str, affinity: Json | None = None, **labels: str) -> None:
    """Somebody else's pod, which runs."""
    spec: Json = {"nodeName": on, "containers": [{"name": "c", "image": "i"}]}
    if affinity is not None:
        spec["affinity"] = affinity
    metadata = {"name": name, "namespace": "default", "labels": labels}
    await stage.world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def leaves(stage: Stage, name: str) -> None:
    await stage.world.client.delete(PODS, Key("default", name), DeleteOptions(grace_period_seconds=0))


def rule(kind: str, **labels: str) -> Json:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def workers(number: int, affinity: Json | None = None, **more: Any) -> Json:
    found = group(number, cpu="1")
    found["template"]["metadata"] = {"labels": {"app": "x"}}
    found["template"]["spec"] |= {**({"affinity": affinity} if affinity else {}), **more}
    return found


def places(stage: Stage, *pods: str) -> list[str]:
    return [stage.pods()[pod]["spec"].get("nodeName", "") for pod in pods]


def wait(stage: Stage, job: str) -> Json:
    found: Json = stage.admission(job).get("wait") or {}
    return found


async def test_replicas_that_keep_off_each_other_get_a_node_each(stage: Stage) -> None:
    await nodes(stage, "a", "b", "c")
    stage.start_operator()
    await stage.submit("j", Worker=workers(3, rule("podAntiAffinity", app="x")))
    await stage.until_pods("j-worker-0", "j-worker-1", "j-worker-2")

    assert sorted(places(stage, "j-worker-0", "j-worker-1", "j-worker-2")) == ["a", "b", "c"]


async def test_a_job_waits_for_a_pod_that_it_has_to_be_near_and_starts_beside_it(stage: Stage) -> None:
    await nodes(stage, "a", "b")
    stage.start_operator()
    await stage.submit("j", Worker=workers(1, rule("podAffinity", role="cache")))
    await stage.world.until(lambda: bool(wait(stage, "j")))

    assert wait(stage, "j")["code"] == "InsufficientResources"
    assert wait(stage, "j")["message"] == "worker: no running pod matches its required pod affinity"

    await other(stage, "cache", "b", role="cache")
    await stage.until_pods("cache", "j-worker-0")
    assert places(stage, "j-worker-0") == ["b"]


async def test_a_job_that_others_keep_off_starts_once_they_have_left(stage: Stage) -> None:
    await nodes(stage, "a")
    await other(stage, "proud", "a", rule("podAntiAffinity", app="x"))
    stage.start_operator()
    await stage.submit("j", Worker=workers(1))
    await stage.world.until(lambda: bool(wait(stage, "j")))

    assert wait(stage, "j")["message"].endswith("leave 0 of 1 nodes")

    await leaves(stage, "proud")
    await stage.until_pods("j-worker-0")


async def test_whoever_comes_first_with_a_rule_keeps_off_jobs_that_wait_already(stage: Stage) -> None:
    await nodes(stage, "a")
    await other(stage, "large", "a")
    stage.start_operator()
    await stage.submit("j", Worker=workers(9))
    await stage.world.until(lambda: bool(wait(stage, "j")))
    await other(stage, "proud", "a", rule("podAntiAffinity", app="x"))
    await stage.world.until(lambda: "leave 0 of 1 nodes" in wait(stage, "j")["message"])


async def test_two_jobs_that_keep_off_each_other_are_not_put_on_one_node_in_one_round(stage: Stage) -> None:
    await nodes(stage, "a")
    for name in ("one", "two"):
        await stage.submit(name, Worker=workers(1, rule("podAntiAffinity", app="x")))
    stage.start_operator()
    await stage.until_pods("one-worker-0")
    await stage.world.until(lambda: "leave 0 of 1 nodes" in wait(stage, "two").get("message", ""))

    await stage.all_run("one-worker-0")
    await stage.plays("one-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: "two-worker-0" in stage.pods())


async def test_a_job_that_prefers_some_nodes_gets_them(stage: Stage) -> None:
    await nodes(stage, "a", "b")
    await nodes(stage, "c", disk="ssd")
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    stage.start_operator()
    await stage.submit(
        "j", Worker=workers(1, {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
    )
    await stage.until_pods("j-worker-0")

    assert places(stage, "j-worker-0") == ["c"]
