"""Which GPUs of HAMi's nodes pods get that do not exist yet, while others ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Unavailable, unavailable
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Key, ObjectMeta
from tarragon.operator.informers.assumed_pods import ASSUMED_SECONDS, AssumedPods, JobId
from tarragon.operator.informers.cache_transforms import CachedPod
from tarragon.operator.informers.hami_gpu_choices import ASSUMED_CHOICE_SECONDS, HamiGpuChoices
from tarragon.plan.objects.hami_pods import with_hami_gpus
from tarragon.plan.objects.placement import with_node_affinity
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait
from tests.hami import CHOSEN, REGISTER, registered, uuid

Json = dict[str, Any]
Handler = Callable[[Key, Any, Any], None]
SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}


class Objects:
    """What a cache shows, at the test's word."""

    def __init__(self) -> None:
        self.objects: dict[Key, Any] = {}
        self._handlers: list[Handler] = []

    def add_event_handler(self, handler: Handler) -> None:
        self._handlers.append(handler)

    def show(self, key: Key, new: Any) -> None:
        old = self.objects.pop(key, None)
        if new is not None:
            self.objects[key] = new
        for handler in self._handlers:
            handler(key, old, new)


class Scene:
    """One node, with that many GPUs."""

    def __init__(self, gpus: int) -> None:
        self.pods, self.nodes, self.clock = Objects(), Objects(), FakeClock()
        pods = cast("CacheReader[Pod]", self.pods)
        self.assumed = AssumedPods(pods, self.clock)
        self.choices = HamiGpuChoices(pods, cast("CacheReader[Node]", self.nodes), self.assumed, self.clock)
        self.woken: list[JobId] = []
        self.choices.on_job_change(self.woken.append)
        self.report(registered("n", gpus))

    def report(self, text: str) -> None:
        self.nodes.show(Key("", "n"), Node(metadata=ObjectMeta(name="n", annotations={REGISTER: text})))

    def find(self, job: str, *, vgpu: int | None = None, whole: int = 0) -> str:
        """The numbers of the GPUs for the job's pod; empty if there are none."""
        found = self.choices.gpus_for(job_id(job), demand(job, vgpu, whole))
        return numbers(found) if isinstance(found, ChosenGpus) else ""

    def body(self, job: str, *, vgpu: int | None = None, whole: int = 0) -> Json:
        """What the operator would create now."""
        found = self.choices.gpus_for(job_id(job), demand(job, vgpu, whole))
        assert isinstance(found, ChosenGpus)
        return pod_body(job, vgpu, whole, found)

    def is_current(self, job: str, body: Json) -> bool:
        return self.choices.is_current(job_id(job), body)

    def show(self, body: Json) -> None:
        pod = decode(encode({**body, "metadata": {**body["metadata"], "uid": body["metadata"]["name"]}}), CachedPod)
        self.pods.show(pod.metadata.key, pod)

    def end(self, job: str) -> None:
        self.pods.show(Key("d", job), None)


def job_id(job: str) -> JobId:
    return "TFJob", Key("d", job)


def demand(job: str, vgpu: int | None, whole: int) -> GpuDemand:
    return GpuDemand(pod=Key("d", job), place="n" if vgpu is None else f"n/{vgpu}", whole=whole)


def numbers(found: ChosenGpus) -> str:
    return "".join(str(int(each.split("-")[1], 16)) for each in found.uuids)


def pod_body(job: str, vgpu: int | None, whole: int, gpus: ChosenGpus | None) -> Json:
    limits = {"nvidia.com/gpu": str(whole)} if whole else {}
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job, "uid": job, "controller": True}
    body: Json = {
        "kind": "Pod",
        "metadata": {"name": job, "namespace": "d", "ownerReferences": [owner], "annotations": {} if whole else SHARE},
        "spec": with_node_affinity({"containers": [{"name": "c", "resources": {"limits": limits}}]}, "n"),
    }
    return dict(body if gpus is None else with_hami_gpus(body, vgpu, gpus, "c"))


def test_two_pods_of_one_vgpu_get_one_gpu_and_other_vgpus_others() -> None:
    scene = Scene(3)

    assert (scene.find("a", vgpu=0), scene.find("b", vgpu=0), scene.find("c", vgpu=1)) == ("0", "0", "1")
    assert (scene.find("d", whole=1), scene.find("e", whole=1)) == ("2", "")


def test_the_same_pod_gets_the_same_gpus_again() -> None:
    scene = Scene(4)
    first = scene.find("a", whole=2)
    scene.find("b", whole=1)

    assert scene.find("a", whole=2) == first == "01"
    assert scene.find("b", whole=1) == "2"


def test_a_choice_is_forgotten_if_no_pod_is_created() -> None:
    scene = Scene(1)
    scene.find("a", whole=1)
    scene.clock.advance(ASSUMED_CHOICE_SECONDS - 0.1)
    assert scene.find("b", whole=1) == ""

    scene.clock.advance(0.1)
    assert scene.find("b", whole=1) == "0"


def test_a_choice_holds_while_the_pod_is_being_created_and_while_it_may_still_appear() -> None:
    scene = Scene(1)
    body = scene.body("a", whole=1)
    assert scene.is_current("a", body)
    request = scene.assumed.assume(body)
    request.__enter__()
    scene.clock.advance(1000)
    assert scene.find("b", whole=1) == ""

    error = unavailable("no answer")
    assert isinstance(error, Unavailable)
    with suppress(Unavailable):
        request.__exit__(type(error), error, None)
    scene.clock.advance(ASSUMED_SECONDS - 1)
    assert scene.find("b", whole=1) == ""

    scene.clock.advance(1)
    scene.assumed.drop_expired()
    assert scene.find("b", whole=1) == "0"


def test_a_pod_holds_its_gpus_from_its_creation_to_its_end_and_then_the_jobs_that_wait_are_told() -> None:
    scene = Scene(1)
    body = scene.body("a", whole=1)
    scene.show(body)
    scene.clock.advance(1000)
    assert scene.find("b", whole=1) == ""
    assert scene.woken == []

    scene.end("a")
    assert scene.woken == [job_id("b")]
    assert scene.find("b", whole=1) == "0"


def test_a_finished_pod_holds_nothing() -> None:
    scene = Scene(1)
    body = scene.body("a", vgpu=0)
    scene.show(body)
    scene.show({**body, "status": {"phase": "Succeeded"}})

    assert scene.find("b", vgpu=1) == "0"


def test_another_operator_finds_what_is_in_use_in_the_pods() -> None:
    before, after = Scene(3), Scene(3)
    for job, vgpu in (("a", 0), ("b", 1)):
        after.show(before.body(job, vgpu=vgpu))

    assert (after.find("c", vgpu=1), after.find("d", vgpu=0), after.find("e", whole=1)) == ("1", "0", "2")


def test_a_pod_whose_gpu_hami_has_given_to_others_meanwhile_is_not_created() -> None:
    scene = Scene(2)
    body = scene.body("a", whole=1)
    foreign = {"name": "x", "namespace": "f", "annotations": {CHOSEN: f"{uuid('n', 0)},NVIDIA,1,1:;"}}
    scene.show({"metadata": foreign, "spec": {"nodeName": "n", "containers": []}})

    assert not scene.is_current("a", body)
    assert scene.is_current("a", scene.body("a", whole=1))
    assert scene.find("a", whole=1) == "1"


def test_a_pod_that_names_no_gpu_is_created_only_if_it_needs_none() -> None:
    scene = Scene(1)

    assert scene.is_current("a", pod_body("a", None, 0, None))
    assert not scene.is_current("a", pod_body("a", None, 1, None))


def test_a_job_that_waits_is_told_when_the_node_has_another_gpu() -> None:
    scene = Scene(1)
    scene.find("a", whole=1)
    assert isinstance(scene.choices.gpus_for(job_id("b"), demand("b", None, 1)), GpuWait)
    scene.report(registered("n", 1))
    assert scene.woken == []

    scene.report(registered("n", 2))
    assert scene.woken == [job_id("b")]


def test_a_node_that_is_gone_has_no_gpus() -> None:
    scene = Scene(1)
    scene.nodes.show(Key("", "n"), None)

    assert scene.choices.gpus_for(job_id("a"), demand("a", 0, 0)) == GpuWait(message="node n is gone")
    assert not scene.choices.shares_gpus_of("n")
