"""What names the uid of a job is the job's only if it is in the job's namespace and names its group, kind and name."""

from __future__ import annotations

import pytest

from tarragon.cli.explain.scheduler_view import build_scheduler_view
from tarragon.kube.core import NAMESPACES, PODS, SERVICES
from tarragon.kube.meta import Key
from tarragon.scheduling.api.rules import SchedulingRules
from tests.operator.stage import TFJOBS, Json, Stage, group, job

FAILED: Json = {"phase": "Failed", "containerStatuses": [{"name": "tensorflow", "image": "i", "imageID": ""}]}
FAILED["containerStatuses"][0] |= {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}
SUCCEEDED: Json = {"phase": "Succeeded", "containerStatuses": [{**FAILED["containerStatuses"][0]}]}
SUCCEEDED["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
RUNNING = {"phase": "Running"}

API_VERSIONS = pytest.mark.parametrize("api_version", ["kubeflow.org/v1", "nowhere.example/v1"])
"""The true one, and one that a real garbage collector can't resolve: it leaves such an object alone."""
IMPOSTORS = pytest.mark.parametrize(
    "wrong",
    [{"apiVersion": "nowhere.example/v1"}, {"apiVersion": "v1"}, {"kind": "TfJob"}, {"name": "other"}, {"uid": "u-0"}],
    ids=lambda wrong: next(iter(wrong)) + "=" + next(iter(wrong.values())).partition("/")[0],
)


async def a_victim(stage: Stage, workers: int = 1, policy: str = "Never", spec: Json | None = None) -> None:
    """The job `va/victim`, whose workers run."""
    for namespace in ("va", "vb"):
        await stage.world.create(NAMESPACES, namespace, namespace="")
    await stage.node("n")
    stage.start_operator()
    body = job("victim", Worker=group(workers, policy=policy), **(spec or {}))
    await stage.world.client.create(TFJOBS, {**body, "metadata": {"name": "victim", "namespace": "va"}})
    names = [f"victim-worker-{index}" for index in range(workers)]
    await stage.world.there(*(f"pods/va/{name}" for name in names))
    for name in names:
        await play(stage, Key("va", name), RUNNING)
    await stage.world.until(lambda: state(stage) == "Running")


async def play(stage: Stage, pod: Key, status: Json) -> None:
    await stage.world.client.patch(PODS, pod, {"status": status}, subresource="status")


async def forge(stage: Stage, pod: Key, status: Json, **reference: str) -> None:
    """A pod, and a service of its name, that name `va/victim` as their controller, with `reference` changed."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "victim", "controller": True}
    owner = {**owner, "uid": victim(stage)["metadata"]["uid"], **reference}
    labels = stage.world.objects["pods/va/victim-worker-0"]["metadata"]["labels"]
    metadata = {"name": pod.name, "namespace": pod.namespace, "ownerReferences": [owner], "labels": labels}
    spec = {"containers": [{"name": "tensorflow", "image": "i"}], "nodeName": "n"}
    service = {"metadata": {**metadata, "name": f"{pod.name}-forged"}, "spec": {"clusterIP": "None"}}
    await stage.world.client.create(SERVICES, service)
    await stage.world.client.create(PODS, {"metadata": metadata, "spec": spec})
    await play(stage, pod, status)


async def everything_was_looked_at(stage: Stage) -> None:
    """Return when the operator has seen all pods that are there now, and looked at the victim after that."""
    await stage.submit("later", Worker=group(1))
    await stage.until_pods("later-worker-0")
    await stage.all_run("later-worker-0")
    await stage.until_state("later", "Running")
    generation = victim(stage)["metadata"]["generation"] + 1
    patch = {"spec": {"runPolicy": {"backoffLimit": 7}}}
    await stage.world.client.patch(TFJOBS, Key("va", "victim"), patch)
    await stage.world.until(lambda: tarragon(stage).get("observedGeneration") == generation)


def victim(stage: Stage) -> Json:
    return stage.world.objects["tfjobs/va/victim"]


def tarragon(stage: Stage) -> Json:
    found: Json = (victim(stage).get("status") or {}).get("tarragon") or {}
    return found


def state(stage: Stage) -> str:
    return str(tarragon(stage).get("state", ""))


def restarts(stage: Stage) -> int:
    return int((tarragon(stage).get("restarts") or {}).get("total", 0))


def is_untouched(stage: Stage, kind: str, key: Key) -> bool:
    found = stage.world.objects.get(f"{kind}/{key.namespace}/{key.name}", {"metadata": {"deletionTimestamp": "gone"}})
    return "deletionTimestamp" not in found["metadata"]


@API_VERSIONS
@pytest.mark.parametrize("status", [SUCCEEDED, FAILED, RUNNING], ids=lambda status: status["phase"])
async def test_a_pod_of_another_namespace_decides_nothing_about_a_job(
    stage: Stage, api_version: str, status: Json
) -> None:
    await a_victim(stage, policy="ExitCode")
    uid = stage.world.objects["pods/va/victim-worker-0"]["metadata"]["uid"]

    await forge(stage, Key("vb", "victim-worker-0"), status, apiVersion=api_version)
    await everything_was_looked_at(stage)

    assert state(stage) == "Running"
    assert restarts(stage) == 0
    assert stage.world.objects["pods/va/victim-worker-0"]["metadata"]["uid"] == uid
    assert is_untouched(stage, "pods", Key("va", "victim-worker-0"))
    assert is_untouched(stage, "pods", Key("vb", "victim-worker-0"))


@API_VERSIONS
async def test_nothing_of_another_namespace_goes_when_the_job_has_ended(stage: Stage, api_version: str) -> None:
    await a_victim(stage, spec={"runPolicy": {"cleanPodPolicy": "All"}})
    await forge(stage, Key("vb", "victim-worker-0"), RUNNING, apiVersion=api_version)
    await forge(stage, Key("vb", "victim-worker-5"), RUNNING, apiVersion=api_version)

    await play(stage, Key("va", "victim-worker-0"), SUCCEEDED)
    await stage.world.gone("services/va/victim-worker-0")
    await everything_was_looked_at(stage)

    assert state(stage) == "Succeeded"
    for name in ("victim-worker-0", "victim-worker-5"):
        assert is_untouched(stage, "pods", Key("vb", name))
        assert is_untouched(stage, "services", Key("vb", f"{name}-forged"))


@IMPOSTORS
async def test_a_pod_whose_reference_names_another_object_is_not_the_jobs(stage: Stage, wrong: dict[str, str]) -> None:
    """In the job's own namespace, with its uid unless that is what is wrong. The name is that of a worker to come."""
    await a_victim(stage, spec={"min-instances": 1, "max-instances": 1})
    await forge(stage, Key("va", "victim-worker-1"), FAILED, **wrong)
    await everything_was_looked_at(stage)
    assert is_untouched(stage, "pods", Key("va", "victim-worker-1"))
    assert is_untouched(stage, "services", Key("va", "victim-worker-1-forged"))

    more = {"spec": {"max-instances": 2, "tfReplicaSpecs": {"Worker": {"replicas": 2}}}}
    await stage.world.client.patch(TFJOBS, Key("va", "victim"), more)
    await stage.world.until(lambda: any("NameTaken" in what for what in reasons(stage)))

    assert state(stage) == "Running"
    assert restarts(stage) == 0
    assert is_untouched(stage, "pods", Key("va", "victim-worker-1"))


@API_VERSIONS
async def test_what_a_foreign_pod_holds_is_shown_as_somebody_elses(stage: Stage, api_version: str) -> None:
    """To whoever asks `why`, and sees who holds the nodes."""
    await a_victim(stage)
    await forge(stage, Key("vb", "victim-worker-0"), RUNNING, apiVersion=api_version)

    seen = await build_scheduler_view(stage.world.client, "va", stage.world.clock, SchedulingRules())

    assert [name for name, _ in seen.other_pods["n"]] == ["pod vb/victim-worker-0"]


async def test_a_pod_of_the_job_by_an_earlier_version_of_its_api_is_the_jobs(stage: Stage) -> None:
    """As tf-operator 0.5 wrote it, of a job that is served as kubeflow.org/v1 today."""
    await a_victim(stage)

    await forge(stage, Key("va", "victim-worker-1"), RUNNING, apiVersion="kubeflow.org/v1beta2")

    await stage.world.until(lambda: not is_untouched(stage, "pods", Key("va", "victim-worker-1")))


def reasons(stage: Stage) -> list[str]:
    return [found["reason"] for what, found in stage.world.objects.items() if what.startswith("events/va/")]
