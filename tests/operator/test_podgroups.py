"""What other gang schedulers are shown of a job. None of them runs here; the objects are those that they read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, PODS
from tarragon.kube.meta import JsonObject, Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.podgroup_kinds import POD_GROUP_KINDS, PodGroup, PodGroupKind
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.decide import decide
from tests.operator.stage import TFJOBS, Stage, group, job
from tests.plan.world import World, manifest

Json = dict[str, Any]
NATIVE = {"default-scheduler": "native"}
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "dist", "controller": True}


def definition(kind: PodGroupKind) -> JsonObject:
    """As much as its owner's has of what decides what may be written."""
    resource = kind.resource
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.full_name,
            "annotations": {"api-approved.kubernetes.io": "https://kubernetes.io"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def offer(stage: Stage, name: str) -> None:
    await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(POD_GROUP_KINDS[name]))
    await stage.world.follow(POD_GROUP_KINDS[name].resource)


def placed_by(scheduler: str, replicas: int, **resources: str) -> Json:
    made = group(replicas, **resources)
    made["template"]["spec"]["schedulerName"] = scheduler
    return made


def start(stage: Stage, **settings: Any) -> None:
    options = OperatorOptions(seed=1, settings=OperatorSettings(**settings))
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())


def shown(stage: Stage, name: str = "job") -> Json:
    found: Json = stage.world.objects[f"podgroups/default/{name}"]
    return found


POLICY = {"schedulingPolicy": {"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 90}}


async def test_volcano_sees_a_group_before_its_pods_as_it_did_before(stage: Stage) -> None:
    await offer(stage, "volcano")
    ps, workers = placed_by("volcano", 1, cpu="500m"), placed_by("volcano", 2, cpu="1", **{"nvidia.com_gpu": "1"})
    await stage.submit("job", PS=ps, Worker=workers, runPolicy=POLICY)
    start(stage)

    await stage.until_pods("job-ps-0", "job-worker-0", "job-worker-1")

    found = shown(stage)
    assert found["spec"] == {
        "minMember": 3,
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": "2500m", "nvidia.com/gpu": "2"},
    }
    assert found["metadata"]["ownerReferences"][0]["name"] == "job"
    marks = stage.pods()["job-worker-1"]["metadata"]["annotations"]
    assert marks == {"scheduling.k8s.io/group-name": "job", "volcano.sh/task-spec": "worker"}
    assert "nodeName" not in stage.pods()["job-worker-1"]["spec"]
    assert stage.admission("job") == {}
    order = [one.what for one in sorted(stage.world.happened) if one.type == "ADDED"]
    assert order.index("podgroups/default/job") < order.index("pods/default/job-ps-0")


async def test_an_elastic_job_needs_its_servers_and_the_fewest_workers(stage: Stage) -> None:
    await offer(stage, "volcano")
    ps, workers = placed_by("volcano", 1, cpu="1"), placed_by("volcano", 4, cpu="2")
    bounds: Json = {"min-instances": 2, "max-instances": 4}
    await stage.submit("job", PS=ps, Worker=workers, **bounds)
    start(stage)

    await stage.world.until(lambda: "job-worker-3" in stage.pods())
    assert shown(stage)["spec"] == {"minMember": 3, "queue": "default", "minResources": {"cpu": "5"}}


async def test_the_plug_in_of_scheduler_plugins_sees_a_group_and_labels(stage: Stage) -> None:
    await offer(stage, "scheduler-plugins")
    await stage.submit("job", Worker=placed_by("scheduler-plugins-scheduler", 2, cpu="1"), runPolicy=POLICY)
    start(stage)

    await stage.until_pods("job-worker-0", "job-worker-1")

    assert shown(stage)["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    wanted = {"minMember": 2, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 90}
    assert shown(stage)["spec"] == wanted
    assert stage.pods()["job-worker-0"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


async def test_kubernetes_own_groups_are_shown_to_whom_they_were_asked_for(stage: Stage) -> None:
    await offer(stage, "native")
    await stage.submit("job", Worker=placed_by("default-scheduler", 2, cpu="1"))
    start(stage, pod_groups=NATIVE)

    await stage.until_pods("job-worker-0", "job-worker-1")

    assert shown(stage)["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}


def test_a_pod_names_its_group_as_kubernetes_1_37_reads_it() -> None:
    """The embedded server drops the field, as every server does that is older than it."""
    world = World(placed_by_default({"Worker": 1}), OperatorSettings(pod_groups=NATIVE))
    world.settle()
    world.settle()

    assert world.pods["dist-worker-0"]["spec"]["schedulingGroup"] == {"podGroupName": "dist"}


def placed_by_default(replicas: dict[str, int]) -> Json:
    job = manifest(replicas)
    for each in job["spec"]["tfReplicaSpecs"].values():
        each["template"]["spec"]["schedulerName"] = "default-scheduler"
    return job


def annotated(replicas: dict[str, int], **annotations: str) -> Json:
    job = placed_by_default(replicas)
    job["metadata"]["annotations"] = {"tarragon.dev/pod-group": "native", **annotations}
    return job


def test_a_job_asks_for_a_group_of_kubernetes_by_its_annotation() -> None:
    alone = {"gang": {"minCount": 2}}

    assert first_group(annotated({"Worker": 2})) == {"schedulingPolicy": alone}
    assert first_group(annotated({"Worker": 2}, **{"tarragon.dev/restart": "gang"})) == {
        "schedulingPolicy": alone,
        "disruptionMode": {"all": {}},
    }


def first_group(job: Json) -> Json:
    """The spec of the PodGroup that is made before the first pod."""
    world = World(job)
    while not any(create.resource == PODS for create in world.decide().creates):
        world.step()
    first = world.decide().creates[0]
    assert (first.resource.full_name, first.is_sequential) == ("podgroups.scheduling.k8s.io", True)
    spec: Json = first.body["spec"]
    return spec


def test_pods_stay_in_the_group_that_their_template_names() -> None:
    job = annotated({"Worker": 1})
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["schedulingGroup"] = {"podGroupName": "of-a-workload"}
    world = World(job)
    world.settle()

    assert world.pods["dist-worker-0"]["spec"]["schedulingGroup"] == {"podGroupName": "of-a-workload"}


def test_a_group_of_kubernetes_needs_pods_that_tarragon_does_not_place() -> None:
    job = annotated({"Worker": 1})
    del job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"]
    world = World(job)
    world.settle()

    assert "write schedulerName: default-scheduler in every pod template" in json.dumps(world.job["status"])


def test_a_job_that_tarragon_places_by_name_says_that_it_gets_no_group_of_kubernetes() -> None:
    job = annotated({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "ours"
    own, other = World(job, OperatorSettings(scheduler_name="ours")), World(job)
    for world in (own, other):
        world.settle()

    warnings = [event.message for event in own.events if event.reason == "QuestionableSpec"]
    said = (
        "has no effect: ours is Tarragon's own scheduler, which needs no PodGroup; "
        "write schedulerName: default-scheduler in every pod template, or remove it"
    )
    assert warnings == [f'metadata.annotations["tarragon.dev/pod-group"]: {said}']
    assert [event.reason for event in other.events if event.reason == "QuestionableSpec"] == []


def test_a_changed_priority_class_is_not_sent_where_it_may_not_change() -> None:
    edited = {"schedulingPolicy": {"priorityClass": "high", "minAvailable": 2}}
    world = World(annotated({"Worker": 3}))
    world.job["spec"]["runPolicy"] = edited
    groups = POD_GROUP_KINDS["native"].resource
    world.settle()
    seen = replace(world.observed(), pod_groups={groups.full_name: a_group(world)})

    patches = decide(world.framework, seen, world.now).patches

    assert [patch.body["spec"] for patch in patches] == [{"schedulingPolicy": {"gang": {"minCount": 2}}}]


async def test_a_server_without_groups_of_kubernetes_says_what_it_lacks(stage: Stage) -> None:
    asking = job("job", Worker=placed_by("default-scheduler", 1, cpu="1"))
    asking["metadata"]["annotations"] = {"tarragon.dev/pod-group": "native"}
    await stage.world.client.create(TFJOBS, asking)
    start(stage)

    await stage.world.until(lambda: bool(stage.events("FailedCreatePodGroup")))

    assert "Kubernetes 1.37 with the feature gate GenericWorkload" in stage.events("FailedCreatePodGroup")[0]
    assert stage.pods() == {}


async def test_a_group_goes_when_its_job_is_suspended_and_comes_back_with_it(stage: Stage) -> None:
    await offer(stage, "volcano")
    await stage.submit("job", Worker=placed_by("volcano", 1, cpu="1"))
    start(stage)
    await stage.until_pods("job-worker-0")

    await stage.world.client.patch(TFJOBS, Key("default", "job"), {"spec": {"runPolicy": {"suspend": True}}})
    await stage.until_state("job", "Suspended")
    await stage.world.until(lambda: "podgroups/default/job" not in stage.world.objects)
    await stage.end_pods()
    await stage.world.client.patch(TFJOBS, Key("default", "job"), {"spec": {"runPolicy": {"suspend": False}}})

    await stage.until_pods("job-worker-0")
    assert shown(stage)["spec"]["minMember"] == 1


async def test_a_group_goes_once_when_its_job_has_ended(stage: Stage) -> None:
    await offer(stage, "volcano")
    await stage.submit("job", Worker=placed_by("volcano", 1, cpu="1"))
    start(stage)
    await stage.until_pods("job-worker-0")

    await stage.plays("job-worker-0", "Succeeded", 0)

    await stage.until_state("job", "Succeeded")
    await stage.world.until(lambda: "podgroups/default/job" not in stage.world.objects)
    happened = [one.type for one in sorted(stage.world.happened) if one.what == "podgroups/default/job"]
    assert happened == ["ADDED", "DELETED"]


async def test_a_group_follows_an_edit_and_keeps_the_queue_that_it_was_moved_to(stage: Stage) -> None:
    await offer(stage, "volcano")
    ps, workers = placed_by("volcano", 1, cpu="1"), placed_by("volcano", 2, cpu="1")
    bounds: Json = {"min-instances": 1, "max-instances": 4}
    await stage.submit("job", PS=ps, Worker=workers, **bounds)
    start(stage)
    await stage.until_pods("job-ps-0", "job-worker-0", "job-worker-1")
    await stage.world.client.patch(
        POD_GROUP_KINDS["volcano"].resource, Key("default", "job"), {"spec": {"queue": "night"}}
    )

    await stage.world.client.patch(TFJOBS, Key("default", "job"), {"spec": {"min-instances": 2}})

    await stage.world.until(lambda: shown(stage)["spec"]["minMember"] == 3)
    assert shown(stage)["spec"]["queue"] == "night"


async def test_a_group_that_takes_fewer_pods_asks_for_nothing_that_only_the_others_needed(stage: Stage) -> None:
    await offer(stage, "volcano")
    ps, workers = placed_by("volcano", 1, cpu="1"), placed_by("volcano", 1, cpu="1", **{"nvidia.com_gpu": "1"})
    await stage.submit("job", PS=ps, Worker=workers)
    start(stage)
    await stage.until_pods("job-ps-0", "job-worker-0")

    fewer = {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "job"), fewer)

    await stage.world.until(lambda: shown(stage)["spec"]["minMember"] == 1)
    assert shown(stage)["spec"]["minResources"] == {"cpu": "1"}


def test_no_pod_is_made_beside_a_group_that_is_on_its_way_out() -> None:
    world = World(placed_by_default({"Worker": 1}), OperatorSettings(pod_groups=NATIVE))
    while not any(create.resource == PODS for create in world.decide().creates):
        world.step()
    seen = world.observed()
    groups = POD_GROUP_KINDS["native"].resource
    ending = a_group(world, deletionTimestamp="2026-11-21T10:00:00Z")
    step = decide(world.framework, replace(seen, pod_groups={groups.full_name: ending}), world.now)

    # The server says that its name is taken still, and the step ends there.
    assert [create.resource for create in step.creates][:1] == [groups]


@pytest.mark.parametrize(
    ("wrong", "deleted"),
    [
        ({}, ["dist"]),
        ({"apiVersion": "nowhere.example/v1"}, []),
        ({"kind": "PyTorchJob"}, []),
        ({"name": "other"}, []),
        ({"uid": "u-0"}, []),
        ({"controller": False}, []),
    ],
)
def test_only_a_group_that_the_job_controls_goes_when_the_job_is_suspended(wrong: Json, deleted: list[str]) -> None:
    world = World(placed_by_default({"Worker": 1}), OperatorSettings(pod_groups=NATIVE))
    world.settle()
    world.edit({"runPolicy": {"suspend": True}})
    groups = POD_GROUP_KINDS["native"].resource
    seen = replace(world.observed(), pod_groups={groups.full_name: a_group(world, **wrong)})

    step = decide(world.framework, seen, world.now)

    assert [delete.key.name for delete in step.deletes if delete.resource == groups] == deleted


def a_group(world: World, deletionTimestamp: str | None = None, **reference: Any) -> PodGroup:  # noqa: N803 - as in JSON
    """One of the job's name, whose owner is the job but for what `reference` says."""
    owner = {**OWNER, "uid": world.job["metadata"]["uid"], **reference}
    metadata = {"name": "dist", "namespace": "n1", "uid": "g", "ownerReferences": [owner]}
    if deletionTimestamp is not None:
        metadata["deletionTimestamp"] = deletionTimestamp
    return msgspec.convert({"metadata": metadata, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}, PodGroup)


@pytest.mark.parametrize("scheduler", ["volcano", "scheduler-plugins-scheduler"])
async def test_a_scheduler_whose_groups_nobody_has_installed_is_told(stage: Stage, scheduler: str) -> None:
    """The job says what is missing; no pod is made that would wait for ever."""
    await stage.submit("job", Worker=placed_by(scheduler, 1, cpu="1"))
    start(stage)

    await stage.world.until(lambda: bool(stage.events("FailedCreatePodGroup")))

    assert "podgroups" in stage.events("FailedCreatePodGroup")[0]
    assert stage.pods() == {}
