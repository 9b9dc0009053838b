"""The operator on the embedded API meets jobs that ask for what Tarragon can't do yet."""

from __future__ import annotations

from typing import Any

from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.operator.stage import TFJOBS, Stage, group, job

WORDS = "fractions of GPUs are not supported yet; ask for whole GPUs with nvidia.com/gpu, or remove it"
MARK = {"kubeshare/gpu_request": "0.5"}
AT = 'spec.tfReplicaSpecs.Worker.template.metadata.annotations["kubeshare/gpu_request"]'


def sharing(replicas: int) -> dict[str, Any]:
    made = group(replicas)
    return {**made, "template": {"metadata": {"annotations": MARK}, **made["template"]}}


def told(stage: Stage, name: str, kind: str) -> tuple[str, str]:
    found = (stage.job(name).get("status") or {}).get("conditions", [])
    return next(((one["reason"], one["message"]) for one in found if one["type"] == kind), ("", ""))


async def test_a_job_that_asks_for_a_share_of_a_gpu_fails_with_a_condition_and_an_event_while_others_run(
    stage: Stage,
) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("shares", Worker=sharing(2))
    marked = job("switched", Worker=group(1))
    marked["metadata"]["annotations"] = {"DRAGON_KUBESHARE": "true"}
    await stage.world.client.create(TFJOBS, marked)
    await stage.submit("whole", Worker=group(1))
    await stage.until_state("shares", "Failed")
    await stage.until_state("switched", "Failed")
    await stage.until_pods("whole-worker-0")
    await stage.world.until(lambda: len(stage.events("TFJobFailedValidation")) == 2)

    assert told(stage, "shares", "Failed") == ("TFJobFailedValidation", f"{AT}: {WORDS}")
    assert sorted(stage.events("TFJobFailedValidation")) == [
        f"metadata.annotations.DRAGON_KUBESHARE: {WORDS}",
        f"{AT}: {WORDS}",
    ]
    assert stage.made() == ["whole-worker-0"]
    assert stage.admission("shares") == {}


async def test_a_job_that_runs_with_it_when_the_operator_is_upgraded_goes_on_and_its_lost_pods_come_back(
    stage: Stage,
) -> None:
    """As an operator that did not look for it has left it: the job has started, and no word of it is on record."""
    await stage.node("n")
    earlier = stage.operator()
    await stage.submit("a", Worker=group(2))
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    await stage.kill(earlier)
    patch = {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": MARK}}}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), patch)
    uids = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}

    stage.start_operator()
    await stage.world.until(lambda: bool(told(stage, "a", "SpecRefused")[1]))
    assert told(stage, "a", "SpecRefused")[1] == (
        f"{AT}: {WORDS}; the job had started before this was refused and runs on"
    )
    assert {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()} == uids

    await stage.world.client.delete(PODS, Key("default", "a-worker-1"))
    await stage.end_pods()
    await stage.world.until(
        lambda: (
            stage.pods().get("a-worker-1", {"metadata": {"uid": ""}})["metadata"]["uid"] not in {"", uids["a-worker-1"]}
        )
    )
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Succeeded")
