"""Fields of pods that not every Kubernetes has: what the API server drops, and scheduling gates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plan.kubelets import shown_reason
from tests.plan.world import World, manifest

Json = dict[str, Any]
SIDECAR = [{"name": "proxy", "image": "proxy", "restartPolicy": "Always"}]


def started(**spec: Any) -> World:
    """All pods are made, of a template with these fields."""
    job = manifest({"Worker": 2})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"].update(spec)
    world = World(job)
    world.settle()
    world.admit()
    world.settle()
    return world


def message(world: World) -> str:
    found = world.status.condition("FieldsIgnored")
    return "" if found is None else found.message


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"initContainers": SIDECAR}, "initContainers[0].restartPolicy (Kubernetes 1.29): proxy is no sidecar"),
        ({"resources": {"limits": {"cpu": 2}}}, "resources (Kubernetes 1.34): only the resources of containers count"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}, "resourceClaims (Kubernetes 1.34): "),
        ({"schedulingGroup": {"podGroupName": "mine"}}, "schedulingGroup (Kubernetes 1.37 with the feature gate"),
    ],
)
def test_a_job_says_which_fields_of_its_pods_the_api_server_drops(spec: Json, said: str) -> None:
    world = started(**spec)
    kept = message(world)
    for pod in world.pods.values():
        for field in spec:
            pod["spec"].pop(field)
        if "initContainers" in spec:
            pod["spec"]["initContainers"] = [{"name": "proxy", "image": "proxy"}]
    world.settle()

    assert kept == ""
    assert message(world).startswith(f"the API server drops Worker template.spec.{said}")
    assert world.conditions()["FieldsIgnored"] == "UnsupportedFields"
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    world.bury()
    world.settle()
    assert world.own_pods() == {}
    assert world.conditions()["FieldsIgnored"] == "UnsupportedFields"


def test_gates_are_named_and_cost_the_gang_no_place() -> None:
    world = started(schedulingGates=[{"name": "example.com/quota"}])

    assert shown_reason(world) == (
        "SchedulingGated",
        "all 2 workers: the pod may not be bound before its scheduling gates are removed: example.com/quota",
    )
    assert world.status.obstacle is None
    assert "nodeName" not in world.pods["dist-worker-0"]["spec"]


def test_pods_that_get_gates_from_a_webhook_are_bound_by_kube_scheduler() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.admit()
    world.was_gated = True
    world.settle()

    assert all("nodeName" not in pod["spec"] and pod["spec"]["affinity"] for pod in world.pods.values())
    # While one of them has gates, the others are made in the same way.
    world.was_gated = False
    world.pods["dist-worker-0"]["spec"]["schedulingGates"] = [{"name": "hold"}]
    world.vanish("dist-worker-1")
    world.settle()
    assert "nodeName" not in world.pods["dist-worker-1"]["spec"]


def test_a_pod_that_a_user_has_resized_stays_as_it_is() -> None:
    world = started()
    world.run()
    world.settle()
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}
    container = world.pods["dist-worker-0"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "2"}}
    world.settle()

    assert {name: pod["metadata"]["uid"] for name, pod in world.pods.items()} == before
    assert container["resources"] == {"requests": {"cpu": "2"}}
