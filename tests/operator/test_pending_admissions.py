"""Which admissions an operator believes: its own, whatever becomes of the cluster; those of others if they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bench.support.dict_cluster import NODES, PODS, TFJOBS, DictCluster, Json, a_job, a_node, a_pod
from tarragon.base.clock import FakeClock
from tarragon.base.resources import NVIDIA_GPU
from tarragon.client.errors import unavailable
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.policies import POLICIES

LONG_AGO = "2026-01-01T00:00:00Z"


class Scene:
    """Nodes `n` and `m` with 8 GPUs each, and an operator that leads."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.quota: dict[str, int] = {}
        self.world: Informers
        self.admitter: GangScheduler
        for name in ("m", "n"):
            self.shelves.put(NODES, a_node(name))
        self.restart()

    def restart(self) -> None:
        """Another operator leads from now on: it knows what is on record, and nothing else."""
        self.shelves.informers.clear()
        self.world = self.shelves.new_informers()
        conduct = AdmissionConfig(rules=lambda: SchedulingRules(queues={"default": QueueRules(quota=self.quota)}))
        cluster: Any = self.shelves
        self.admitter = GangScheduler(cluster, self.clock, self.world, POLICIES["fifo"], conduct)

    async def rounds(self) -> None:
        """Until nothing changes any more."""
        before = -1
        while len(self.shelves.patched) != before:
            before = len(self.shelves.patched)
            await self.admitter.run_cycle()

    def job(self, name: str) -> Json:
        return self.shelves.objects[TFJOBS.plural, Key("default", name)]

    async def submitted(self, name: str, workers: int, **spec: Any) -> None:
        self.shelves.put(TFJOBS, a_job(name, workers=workers, **spec))
        await self.rounds()

    def admission(self, name: str) -> Json:
        found: Json = ((self.job(name).get("status") or {}).get("tarragon") or {}).get("admission") or {}
        return found

    def nodes(self, name: str) -> Json:
        found: Json = self.admission(name).get("nodes", {}).get("Worker", {})
        return found

    def is_refused(self, name: str) -> bool:
        return "refused" in self.admission(name)

    def write(self, name: str, **tarragon: Any) -> None:
        """Into the status, as somebody else."""
        self.shelves.put(TFJOBS, apply_merge_patch(self.job(name), {"status": {"tarragon": tarragon}}))

    def forge(self, name: str, nodes: Mapping[str, str], size: int, **tarragon: Any) -> None:
        before = self.admission(name).get("nodes")
        gone = dict.fromkeys(before.get("Worker", {})) if before else {}
        placed = {"Worker": {**gone, **nodes}}
        admission = {"queued": LONG_AGO, "admitted": LONG_AGO, "size": {"Worker": size}, "nodes": placed}
        self.write(name, admission=admission, **tarragon)

    def edit(self, name: str, **spec: Any) -> None:
        body = a_job(name, **{"workers": 4, **spec})
        known = self.job(name)
        self.shelves.put(TFJOBS, {**body, "metadata": known["metadata"], "status": known["status"]})

    def hog(self, node: str, gpus: int) -> None:
        """A pod of somebody else's, that kube-scheduler has bound."""
        spec = {"nodeName": node, "containers": [{"resources": {"requests": {NVIDIA_GPU: str(gpus)}}}]}
        self.shelves.put(PODS, {"metadata": {"name": f"hog-{node}", "namespace": "x"}, "spec": spec})


RUNNING = {"type": "Running", "status": "True", "reason": "TFJobRunning", "lastTransitionTime": LONG_AGO}


def shrinks(scene: Scene) -> None:
    for name in ("m", "n"):
        node = a_node(name)
        node["status"]["allocatable"]["nvidia.com/gpu"] = "1"
        scene.shelves.put(NODES, node)


def goes(scene: Scene) -> None:
    for name in ("m", "n"):
        scene.shelves.remove(NODES, Key("", name))


def is_taken(scene: Scene) -> None:
    for name in ("m", "n"):
        scene.hog(name, 8)


def has_a_lower_quota(scene: Scene) -> None:
    scene.quota[NVIDIA_GPU] = 1000


def is_edited(scene: Scene) -> None:
    scene.edit("a", gpus=7)


HAPPENINGS = [shrinks, goes, is_taken, has_a_lower_quota, is_edited]


@pytest.mark.parametrize("happens", HAPPENINGS)
async def test_an_operator_never_refuses_what_it_has_decided_itself(happens: Any) -> None:
    scene = Scene()
    await scene.submitted("a", 4)
    before = scene.nodes("a")
    happens(scene)
    scene.write("a", state="Starting")
    await scene.rounds()

    assert not scene.is_refused("a")
    assert scene.nodes("a") == before


@pytest.mark.parametrize("happens", HAPPENINGS)
@pytest.mark.parametrize("state", ["Running", "Failed", "Succeeded"])
async def test_a_new_operator_believes_the_admission_of_a_job_that_has_a_pod(happens: Any, state: str) -> None:
    """One is enough, whatever has become of it: the others may be on their way."""
    scene = Scene()
    await scene.submitted("a", 4)
    before = scene.nodes("a")
    (node,) = before
    scene.shelves.put(PODS, a_pod(scene.job("a"), "worker-2", node, phase=state))
    happens(scene)
    scene.restart()
    await scene.rounds()

    assert not scene.is_refused("a")
    assert scene.nodes("a") == before


async def test_a_new_operator_believes_all_admissions_together_that_the_one_before_it_has_decided() -> None:
    scene = Scene()
    scene.quota[NVIDIA_GPU] = 16_000
    for number in range(5):
        await scene.submitted(f"job-{number}", 3)
    before = {f"job-{number}": scene.nodes(f"job-{number}") for number in range(5)}
    scene.restart()
    patched = len(scene.shelves.patched)
    await scene.rounds()

    assert {name: scene.nodes(name) for name in before} == before
    assert len(scene.shelves.patched) == patched


async def test_a_job_that_ran_on_a_node_which_went_while_nobody_led_is_displaced_and_not_refused() -> None:
    scene = Scene()
    await scene.submitted("a", 4)
    (node,) = scene.nodes("a")
    scene.write("a", state="Running")
    scene.shelves.put(TFJOBS, apply_merge_patch(scene.job("a"), {"status": {"conditions": [RUNNING]}}))
    scene.shelves.remove(NODES, Key("", node))
    scene.restart()
    await scene.rounds()

    assert scene.nodes("a") == {"m" if node == "n" else "n": "0-3"}
    assert not scene.is_refused("a")
    assert scene.admission("a")["size"] == {"Worker": 4}


async def test_a_job_without_a_pod_whose_node_went_while_nobody_led_starts_elsewhere_at_once() -> None:
    scene = Scene()
    await scene.submitted("a", 4)
    (node,) = scene.nodes("a")
    scene.shelves.remove(NODES, Key("", node))
    scene.restart()
    await scene.rounds()

    assert scene.nodes("a") == {"m" if node == "n" else "n": "0-3"}


async def test_a_job_whose_spec_was_edited_while_nobody_led_and_that_has_no_pod_is_decided_anew() -> None:
    scene = Scene()
    await scene.submitted("a", 4)
    scene.edit("a", workers=2, gpus=8)
    scene.restart()
    await scene.rounds()

    assert scene.nodes("a") == {"m": "0", "n": "1"}


async def test_a_decision_whose_answer_was_lost_is_still_the_operators_own() -> None:
    scene = Scene()
    patch = DictCluster.patch

    async def unanswered(*what: Any, **how: Any) -> Any:
        await patch(scene.shelves, *what, **how)
        raise unavailable("the connection broke")

    cluster: Any = scene.admitter
    scene.shelves.is_lagging = True
    scene.shelves.put(TFJOBS, a_job("a", workers=4))
    scene.shelves.deliver_events()
    cluster._writer._cluster = type("Cut", (), {"patch": staticmethod(unanswered)})()  # noqa: SLF001 - the network
    with pytest.raises(Exception, match="the connection broke"):
        await scene.admitter.run_cycle()
    cluster._writer._cluster = scene.shelves  # noqa: SLF001
    is_taken(scene)
    scene.shelves.deliver_events()
    await scene.rounds()

    assert scene.admission("a")["admitted"]
    assert not scene.is_refused("a")


async def test_a_size_without_places_is_no_way_to_be_left_to_kube_scheduler() -> None:
    scene = Scene()
    await scene.submitted("a", 1, **{"min-instances": 1, "max-instances": 4})
    before = scene.admission("a")
    scene.write("a", admission={"size": {"Worker": 4}})
    await scene.rounds()

    assert {**scene.admission("a"), "refused": None} == {**before, "refused": None}
    assert scene.is_refused("a")


async def test_replicas_that_somebody_says_are_finished_get_no_places_by_that() -> None:
    scene = Scene()
    await scene.submitted("big", 15)
    await scene.submitted("a", 4)
    scene.forge("a", {"m": "0-3"}, 4, finished={"Worker": "0-3"})
    await scene.rounds()
    scene.write("a", finished=None)
    await scene.rounds()

    assert scene.is_refused("a")
    assert "admitted" not in scene.admission("a")


async def test_a_forged_admission_counts_for_no_quota() -> None:
    scene = Scene()
    scene.quota[NVIDIA_GPU] = 5000
    await scene.submitted("a", 4)
    await scene.submitted("forged", 4)
    scene.forge("forged", {"n": "0-3"}, 4)
    await scene.submitted("b", 1)

    assert "admitted" not in scene.admission("forged")
    assert "admitted" in scene.admission("b")


async def test_who_waits_gets_the_place_that_a_forged_admission_would_have_taken() -> None:
    scene = Scene()
    for name in ("a", "b"):
        await scene.submitted(name, 8)
    await scene.submitted("victim", 8)
    await scene.submitted("zulu", 8)
    scene.forge("zulu", {"m": "0-7"}, 8)
    await scene.rounds()
    scene.shelves.remove(TFJOBS, Key("default", "a"))
    await scene.rounds()

    assert "admitted" in scene.admission("victim")
    assert "admitted" not in scene.admission("zulu")


async def test_nothing_is_made_by_an_admission_that_nobody_has_looked_at() -> None:
    scene = Scene()
    await scene.submitted("a", 16)
    await scene.submitted("forged", 8)
    scene.forge("forged", {"n": "0-7"}, 8)
    observed = scene.world.observe("TFJob", Key("default", "forged"))
    assert observed is not None
    assert not scene.world.is_admission_accepted("TFJob", observed)

    told: list[Any] = []
    scene.world.accepted_admissions.subscribe(told.append)
    await scene.rounds()
    observed = scene.world.observe("TFJob", Key("default", "forged"))
    assert observed is not None
    assert scene.world.is_admission_accepted("TFJob", observed)
    assert told == [("TFJob", Key("default", "forged"))]


async def test_a_job_whose_edit_makes_no_sense_gets_no_places_by_hand() -> None:
    scene = Scene()
    await scene.submitted("a", 2, **{"min-instances": 1, "max-instances": 8})
    before = scene.nodes("a")
    accepted = {"replicas": {"Worker": {"wish": 2, "policy": "OnFailure"}}, "cleanPods": "Running", "elastic": [1, 8]}
    scene.write("a", state="Running", accepted=accepted)
    await scene.rounds()
    body = scene.job("a")
    spec = apply_merge_patch(body["spec"], {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": []}}}}})
    scene.shelves.put(TFJOBS, {**body, "spec": spec})
    scene.forge("a", {"n": "0-7"}, 8)
    await scene.rounds()

    assert scene.nodes("a") == before
    assert scene.is_refused("a")


async def test_a_job_that_is_resumed_does_not_bring_an_admission_along() -> None:
    scene = Scene()
    await scene.submitted("big", 16)
    await scene.submitted("a", 4, runPolicy={"suspend": True})
    scene.forge("a", {"n": "0-3"}, 4)
    await scene.rounds()
    scene.edit("a")
    await scene.rounds()

    assert "admitted" not in scene.admission("a")
    assert scene.is_refused("a")


async def test_the_same_forged_admission_is_refused_each_time() -> None:
    scene = Scene()
    await scene.submitted("big", 16)
    await scene.submitted("a", 4)
    for _ in range(3):
        scene.forge("a", {"n": "0-3"}, 4)
        await scene.rounds()
        assert "admitted" not in scene.admission("a")
        assert scene.admission("a")["wait"]["code"] == "InsufficientResources"
