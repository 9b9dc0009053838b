"""Fields of pods that came after 1.20. A server that does not know them drops them, and is asked no more."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import Invalid
from tarragon.client.port import Client
from tarragon.kube.meta import Key
from tests.contract.objects import WHOLE_PODS, Json, pod

GATES = [{"name": "example.com/quota"}, {"name": "hold"}]


async def test_gates_may_only_be_removed_and_keep_a_pod_from_every_node(cluster: Client, namespace: str) -> None:
    made = await cluster.create(WHOLE_PODS, pod(namespace, "gated", schedulingGates=GATES))
    if "schedulingGates" not in made["spec"]:
        return  # before 1.26
    key = Key(namespace, "gated")
    with pytest.raises(Invalid, match=r"spec\.nodeName: Forbidden: cannot be set until all schedulingGates have been"):
        await cluster.create(WHOLE_PODS, pod(namespace, "bound", schedulingGates=GATES, nodeName="n"))
    with pytest.raises(Invalid, match=r"only deletion is allowed, but found new scheduling gate 'late'"):
        await cluster.patch(WHOLE_PODS, key, {"spec": {"schedulingGates": [*GATES, {"name": "late"}]}})
    twice = [{"name": "hold"}, {"name": "hold"}]
    with pytest.raises(Invalid, match=r'spec\.schedulingGates\[1\]: Duplicate value: "hold"'):
        await cluster.create(WHOLE_PODS, pod(namespace, "twice", schedulingGates=twice))
    opened = await cluster.patch(WHOLE_PODS, key, {"spec": {"schedulingGates": None}})

    (condition,) = made["status"]["conditions"]
    said = "Scheduling is blocked due to non-empty scheduling gates"
    assert (condition["type"], condition["reason"], condition["message"]) == ("PodScheduled", "SchedulingGated", said)
    assert "lastTransitionTime" in condition
    assert "schedulingGates" not in opened["spec"]


def sized(namespace: str, pod_level: Json, **containers: Any) -> Json:
    made = pod(namespace, "sized", schedulerName="nobody", resources=pod_level)
    made["spec"]["containers"][0]["resources"] = containers
    return made


CPU, BOTH = {"requests": {"cpu": "1"}}, {"limits": {"cpu": "2", "memory": "1Gi"}}
NONSENSE = {
    "less than the containers": (
        sized("", {"requests": {"cpu": "500m"}}, **CPU),
        r'resources\.requests\[cpu\]: Invalid value: "500m": must be greater than or equal to aggregate container req',
    ),
    "a container with more than the pod": (
        sized("", {"limits": {"memory": "1Gi"}}, limits={"memory": "2Gi"}),
        r'resources\.containers\[0\]\[memory\]\.limits: Invalid value: "2Gi": must be less than or equal to pod limits',
    ),
    "devices": (
        sized("", {"limits": {"nvidia.com/gpu": "1"}}),
        r'resources\.limits\[nvidia\.com/gpu\]: Unsupported value: .*: supported values: "cpu", "hugepages-", "memory"',
    ),
    "a request above its limit": (
        sized("", {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}),
        r'spec\.resources\.requests: Invalid value: "3": must be less than or equal to cpu limit of 2',
    ),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_resources_of_a_pod_must_go_with_those_of_its_containers(
    cluster: Client, namespace: str, what: str
) -> None:
    body, said = NONSENSE[what]
    body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
    if not await knows_resources(cluster, namespace):
        return

    with pytest.raises(Invalid, match=said):
        await cluster.create(WHOLE_PODS, body)


async def test_what_a_pod_requests_as_a_whole_is_filled_in_from_containers_and_limits(
    cluster: Client, namespace: str
) -> None:
    if not await knows_resources(cluster, namespace):
        return

    made = await cluster.create(WHOLE_PODS, sized(namespace, BOTH, **CPU))

    assert made["spec"]["resources"] == {**BOTH, "requests": {"cpu": "1", "memory": "1Gi"}}
    assert made["status"]["qosClass"] == "Burstable"


async def knows_resources(cluster: Client, namespace: str) -> bool:
    asked = {**pod(namespace, "first-asked", schedulerName="nobody", resources=BOTH)}
    return "resources" in (await cluster.create(WHOLE_PODS, asked))["spec"]
