from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import ALL_OBJECTS, DeleteOptions, ObjectList, Selector, WatchEvent
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.objects.owned_objects import CONFIG_MAPS, ROLES
from tarragon.frameworks.registry import FRAMEWORKS, framework_of
from tarragon.job.annotations import CHECKPOINT_SECONDS_ANNOTATION, NATIVE_POD_GROUP, POD_GROUP_ANNOTATION
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, SERVICES
from tarragon.kube.meta import CustomObject, JsonObject, Key, Resource
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.rbac import ADMIT, permissions
from tarragon.plan.objects.podgroup_kinds import DEFAULT_KIND_BY_SCHEDULER, POD_GROUP_KINDS
from tests.deploy.stage import TFJOBS, Json, Stage, group, job, verbs_of
from tests.deploy.test_admission_policy import FILE as POLICIES
from tests.deploy.test_admission_policy import SINCE as POLICIES_SINCE
from tests.deploy.test_progress import done, free_address, program_in, takes_reports
from tests.operator.test_podgroups import definition
from tests.real.gangs import serves_native_pod_groups

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

OPERATOR = "system:serviceaccount:tarragon-system:tarragon"
T = TypeVar("T")

# Asked by the API server itself, of its authorizer: no request tells of them.
NEVER_REQUESTED = {
    *((each.resource.group, f"{each.resource.plural}/finalizers", "update") for each in FRAMEWORKS),
    *((each.resource.group, f"{each.resource.plural}/status", ADMIT) for each in FRAMEWORKS),
    ("", "pods/exec", "create"),
}
OF_NATIVE_POD_GROUPS = {
    ("scheduling.k8s.io", "podgroups", verb) for verb in ("watch", "create", "get", "patch", "delete")
}


def never_requested() -> set[tuple[str, str, str]]:
    return NEVER_REQUESTED | (set() if serves_native_pod_groups() else OF_NATIVE_POD_GROUPS)


async def test_the_operator_lives_by_its_role_and_uses_every_verb_of_it(with_gangs: Stage) -> None:
    stage = with_gangs
    await stage.install("create", "-f", "deploy/")
    await forbid_the_rest(stage)
    await stage.node("n")
    await define_pod_groups(stage)
    config = await stage.token()
    await begin_elsewhere(stage)
    first = await stage.operator(config, *takes_reports(free_address()))
    await stage.until(lambda: first.is_leading)
    # What it publishes is another thing than what is there.
    second = await stage.operator(config, "--aged", "31")

    for story in (are_taken_over, reports_its_progress, runs_to_its_end, fails_and_is_restarted):
        await story(stage)
    await is_suspended_and_resumed(stage, 2)
    await is_made_smaller(stage)
    await are_gangs_of_others(stage)
    await first.stop()
    await stage.until(lambda: second.is_leading)
    await is_suspended_and_resumed(stage, 3)
    await runs_and_expires(stage)
    await one_of_2017_runs_and_expires(stage)
    await an_mpijob_with_exec_changes_its_size_and_expires(stage)
    await an_mpijob_with_ssh_runs(stage)
    for story in (a_jaxjob_runs_and_expires, a_sharepod_runs, an_anchor_holds_a_gpu):
        await story(stage)
    await second.stop()
    await meets_names_that_its_watch_does_not_show(stage, config)

    asked = stage.asked_by(OPERATOR)
    refused = [event for event in asked if event["responseStatus"].get("code") in {401, 403}]
    granted = {(each.group, each.resource, verb) for each in permissions() for verb in each.verbs}
    used = verbs_of(asked) | lists_by_watches(asked)
    assert (verbs_of(refused), used - granted, granted - used - never_requested()) == (set(), set(), set())


def lists_by_watches(asked: Sequence[Json]) -> set[tuple[str, str, str]]:
    """Where the server streams lists, caches ask for nothing but a watch; `list` is for all other servers."""
    streams = [event for event in asked if "sendInitialEvents" in event["requestURI"]]
    return {(group, resource, "list") for group, resource, _ in verbs_of(streams)}


async def forbid_the_rest(stage: Stage) -> None:
    """By the component admission-policy, which must not forbid what the operator does."""
    if stage.plane.minor >= POLICIES_SINCE:
        await stage.kubectl("create", "-f", POLICIES)


def begun_elsewhere() -> list[Json]:
    return [job("of-tf", "default", Worker=group(1)), jaxjob("of-jax"), sharepod("of-sharepod")]


async def begin_elsewhere(stage: Stage) -> None:
    """Create jobs whose statuses look as if another operator had begun them, and which a user has handed over."""
    for whole in begun_elsewhere():
        resource, name = resource_of(whole), whole["metadata"]["name"]
        whole["metadata"]["annotations"] = {ADOPT_ANNOTATION: "true"}
        status = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
        await stage.kubectl.established(resource.full_name)
        await stage.http.create(resource, whole)
        await stage.http.patch(resource, Key("default", name), status, subresource="status")


async def are_taken_over(stage: Stage) -> None:
    """They get the mark that they are ours."""
    jobs = [(resource_of(whole), Key("default", whole["metadata"]["name"])) for whole in begun_elsewhere()]
    for resource, key in jobs:
        async with stage.patience():
            while GENERATION_ANNOTATION not in (await stage.http.get(resource, key)).metadata.annotations:
                await stage.clock.sleep(0.1)
    for resource, key in jobs:
        await stage.http.delete(resource, key)
    await stage.until(stage.has_pods)


def resource_of(whole: Json) -> Resource[CustomObject]:
    framework = framework_of(whole["apiVersion"], whole["kind"])
    assert framework is not None
    return framework.resource


async def reports_its_progress(stage: Stage) -> None:
    await stage.submit("r", Worker=group(1))
    await stage.until(lambda: stage.has_pods("r-worker-0"))
    assert (await (await program_in(stage, "r-worker-0")).report()).code == 200
    await stage.until(lambda: done(stage, "r") == 1200)
    await stage.http.delete(TFJOBS, Key("default", "r"))
    await stage.until(stage.has_pods)


async def runs_to_its_end(stage: Stage) -> None:
    await stage.submit("a", PS=group(1), Worker=group(2))
    await stage.until_state("a", "Running")
    await stage.until(lambda: stage.has_pods("a-ps-0", "a-worker-0", "a-worker-1"))
    for pod in ("a-worker-1", "a-worker-0"):
        await stage.ends(pod, 0)
    await stage.until_state("a", "Succeeded")
    await stage.http.delete(TFJOBS, Key("default", "a"))
    await stage.kubectl("delete", "pods", "--all", "--wait=false")
    await stage.until(stage.has_pods)


async def fails_and_is_restarted(stage: Stage) -> None:
    await stage.submit("b", Worker=group(2, policy="OnFailure"))
    await stage.until_state("b", "Running")
    await stage.until(lambda: stage.has_pods("b-worker-0", "b-worker-1"))
    uid = stage.pods.objects[Key("default", "b-worker-1")].metadata.uid
    await stage.ends("b-worker-1", 1)
    await stage.until(
        lambda: (
            (found := stage.pods.objects.get(Key("default", "b-worker-1"))) is not None and found.metadata.uid != uid
        )
    )
    await stage.until(lambda: stage.has_pods("b-worker-0", "b-worker-1"))
    await stage.until_state("b", "Running")


async def is_suspended_and_resumed(stage: Stage, times: int) -> None:
    """What is told in the same words again is counted, also by a leader that has not told it the first time."""
    pods = [key.name for key in stage.pods.objects if key.namespace == "default"]
    await stage.change("b", {"runPolicy": {"suspend": True}})
    await stage.until_state("b", "Suspended")
    await stage.until(stage.has_pods)
    await stage.change("b", {"runPolicy": {"suspend": False}})
    await stage.until(lambda: stage.has_pods(*pods))
    await stage.until_state("b", "Running")
    await stage.until_told("b", "TFJobRunning", times=times)


async def is_made_smaller(stage: Stage) -> None:
    """Whoever leaves is told before, to save what it has done."""
    await stage.http.patch(
        TFJOBS, Key("default", "b"), {"metadata": {"annotations": {CHECKPOINT_SECONDS_ANNOTATION: "1"}}}
    )
    await stage.change("b", {"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
    await stage.until(lambda: stage.has_pods("b-worker-0"))


async def define_pod_groups(stage: Stage) -> None:
    """Those of other schedulers. Kubernetes itself serves its own."""
    for kind in DEFAULT_KIND_BY_SCHEDULER.values():
        await stage.http.create(CUSTOM_RESOURCE_DEFINITIONS, definition(POD_GROUP_KINDS[kind]))


async def are_gangs_of_others(stage: Stage) -> None:
    for scheduler, kind in DEFAULT_KIND_BY_SCHEDULER.items():
        await is_a_gang_of_others(stage, scheduler, kind, lambda least: {"minMember": least})
    if serves_native_pod_groups():
        await is_a_gang_of_others(stage, "other", NATIVE_POD_GROUP, native_spec)


def native_spec(least: int) -> JsonObject:
    return {"schedulingPolicy": {"gang": {"minCount": least}}}


async def is_a_gang_of_others(stage: Stage, scheduler: str, kind: str, spec: Callable[[int], JsonObject]) -> None:
    """At first there is one of that name already; then one that follows an edit, and goes with the job's end."""
    groups = POD_GROUP_KINDS[kind].resource
    key = Key("default", scheduler)
    stranger = {
        "apiVersion": groups.api_version,
        "kind": "PodGroup",
        "metadata": {"name": scheduler, "namespace": "default"},
        "spec": spec(1),
    }
    await stage.http.create(groups, stranger)
    worker = group(1)
    worker["template"]["spec"]["schedulerName"] = scheduler
    asking = job(scheduler, "default", Worker=worker)
    if kind == NATIVE_POD_GROUP:
        asking["metadata"]["annotations"] = {POD_GROUP_ANNOTATION: kind}
    await stage.http.create(TFJOBS, asking)
    await stage.until_told(scheduler, "FailedCreatePodGroup")
    await stage.http.delete(groups, key)
    await stage.until(lambda: Key("default", f"{scheduler}-worker-0") in stage.pods.objects)
    await stage.change(scheduler, {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}})
    while not spec(2).items() <= (await stage.http.get(groups, key)).spec.items():
        await stage.clock.sleep(0.1)
    await stage.change(scheduler, {"runPolicy": {"suspend": True}})
    await stage.until_state(scheduler, "Suspended")
    while (await stage.http.list(groups)).items:
        await stage.clock.sleep(0.1)
    await stage.until(lambda: Key("default", f"{scheduler}-worker-0") not in stage.pods.objects)
    await stage.http.delete(TFJOBS, key)
    await stage.until(lambda: key not in stage.jobs.objects)


async def meets_names_that_its_watch_does_not_show(stage: Stage, config: Path) -> None:
    """Then the create is refused, and whose the name is must be asked."""
    metadata = {"name": "c-worker-0", "namespace": "default"}
    pod = {"containers": [{"name": "c", "image": "i"}]}
    await stage.http.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    service = {"clusterIP": "None", "ports": [{"port": 1}]}
    await stage.http.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    await stage.submit("c", Worker=group(1))
    async with Lagging(load_kubeconfig({}, path=config).rest_config, random.Random(1)) as http:
        operator = asyncio.create_task(Operator(http, stage.clock, OperatorOptions()).run())
        await stage.until_told("c", "FailedCreateService")
        await stage.http.delete(SERVICES, Key("default", "c-worker-0"))
        await stage.until_told("c", "FailedCreatePod")
        await stage.http.delete(PODS, Key("default", "c-worker-0"), DeleteOptions(grace_period_seconds=0))
        await stage.until_state("c", "Running")
        operator.cancel()
        await asyncio.wait([operator])


class Lagging(HttpClient):
    """Its lists and watches have not come to what strangers call c-worker-0 yet."""

    def stream_list(self, *_: object) -> None:
        return

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        listing = await super().list(resource, selection)
        return ObjectList([item for item in listing.items if not is_strange(item)], listing.resource_version)

    async def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        async for event in super().watch(resource, selection, since):
            if not is_strange(event.object):
                yield event


def is_strange(found: object) -> bool:
    return isinstance(found, msgspec.Raw) and b'"c-worker-0"' in bytes(found) and b"ownerReferences" not in bytes(found)


async def one_of_2017_runs_and_expires(stage: Stage) -> None:
    """Of the kind that is called alike, by another group; its parameter server is left to the operator."""
    template = group(1)["template"]
    job = {
        "apiVersion": "mlkube.io/v1beta1",
        "kind": "TfJob",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": {
            "RuntimeId": "ab12",
            "replicaSpecs": [{"tfReplicaType": "MASTER", "template": template}, {"tfReplicaType": "PS"}],
            "ttlSecondsAfterFinished": 0,
        },
    }
    await stage.kubectl("create", "-f", "-", stdin=json.dumps(job))
    await stage.until(lambda: stage.runs_all("master-ab12-0"))
    await stage.ends("master-ab12-0", 0)
    await stage.kubectl("wait", "--for=delete", "tfjobs.mlkube.io/e", "--timeout=60s")


async def an_mpijob_with_exec_changes_its_size_and_expires(stage: Stage) -> None:
    """At first there are objects of those names already, which the operator does not watch."""
    config, role = Key("default", "m-config"), Key("default", "m-launcher")
    for resource, key in ((CONFIG_MAPS, config), (ROLES, role)):
        metadata = {"name": key.name, "namespace": key.namespace}
        stranger = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        await stage.http.create(resource.with_model(dict), stranger)
    await stage.submit_mpi("m", "v1", ttlSecondsAfterFinished=0)
    for resource, key in ((CONFIG_MAPS, config), (ROLES, role)):
        await stage.until_told("m", f"FailedCreate{resource.kind}")
        await stage.http.delete(resource, key)
    await stage.until(lambda: stage.runs_all("m-launcher", "m-worker-0", "m-worker-1"))

    await stage.http.patch(
        MPI.resource, Key("default", "m"), {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}}
    )
    while any(rule["resourceNames"] != ["m-worker-0"] for rule in (await stage.http.get(ROLES, role)).rules or ()):
        await stage.clock.sleep(0.1)
    while (await stage.http.get(CONFIG_MAPS, config)).data["hostfile"] != "m-worker-0 slots=1\n":
        await stage.clock.sleep(0.1)
    await stage.ends("m-launcher", 0)
    await stage.kubectl("wait", "--for=delete", "mpijobs/m", "--timeout=60s")


async def an_mpijob_with_ssh_runs(stage: Stage) -> None:
    await stage.submit_mpi("s", "v2beta1")
    await stage.until(lambda: stage.runs_all("s-launcher", "s-worker-0", "s-worker-1"))
    await stage.ends("s-launcher", 0)
    await stage.until_told("s", "MPIJobSucceeded")


def jaxjob(name: str, **run_policy: Any) -> Json:
    worker = group(1)
    worker["template"]["spec"]["containers"][0]["name"] = "jax"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"jaxReplicaSpecs": {"Worker": worker}, "runPolicy": run_policy},
    }


async def a_jaxjob_runs_and_expires(stage: Stage) -> None:
    await stage.kubectl("create", "-f", "-", stdin=json.dumps(jaxjob("x", ttlSecondsAfterFinished=0)))
    await stage.until(lambda: stage.runs_all("x-worker-0"))
    await stage.ends("x-worker-0", 0)
    await stage.kubectl("wait", "--for=delete", "jaxjobs/x", "--timeout=60s")


def sharepod(name: str) -> Json:
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


async def a_sharepod_runs(stage: Stage) -> None:
    await stage.kubectl("create", "-f", "-", stdin=json.dumps(sharepod("y")))
    await stage.until(lambda: stage.runs_all("y"))
    await stage.until_told("y", "SharePodRunning")
    await stage.kubectl("delete", "sharepods/y")


async def an_anchor_holds_a_gpu(stage: Stage) -> None:
    """There is no kubelet whose logs could be read, so the GPU is named by the test."""
    status = {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}
    await stage.http.patch(NODES, Key("", "n"), {"status": status}, subresource="status")
    worker = group(1)
    worker["template"]["metadata"] = {"annotations": {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}}
    await stage.submit("z", Worker=worker)
    anchor = Key("tarragon-system", "tarragon-gpu-n-0")
    await stage.until(lambda: anchor in stage.pods.objects)
    await stage.until(lambda: any("pods/log" in verb for verb in verbs_of(stage.asked_by(OPERATOR))))
    uuid = {"tarragon.dev/gpu-uuid": "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"}
    await stage.http.patch(PODS, anchor, {"metadata": {"annotations": uuid}})
    await stage.until(lambda: stage.runs_all("z-worker-0"))
    await stage.ends("z-worker-0", 0)
    await stage.until(lambda: anchor not in stage.pods.objects)
    await stage.http.delete(TFJOBS, Key("default", "z"))


async def runs_and_expires(stage: Stage) -> None:
    await stage.submit("d", Worker=group(1), runPolicy={"ttlSecondsAfterFinished": 0})
    await stage.until_state("d", "Running")
    await stage.ends("d-worker-0", 0)
    await stage.until(lambda: Key("default", "d") not in stage.jobs.objects)
