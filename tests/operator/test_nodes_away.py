from __future__ import annotations

from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tests.operator.stage import Stage, group


async def test_a_job_waits_for_a_cordoned_node_and_is_told_which_and_how_it_comes_back(stage: Stage) -> None:
    await stage.node("a", cpu="2")
    await stage.node("b", cpu="2")
    await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"unschedulable": True}})
    stage.start_operator()
    await stage.submit("job", Worker=group(2, cpu="2"))
    await stage.world.until(lambda: "wait" in stage.admission("job"))

    assert stage.admission("job")["wait"] == {
        "code": "NodesAway",
        "message": "the job needs 4 cpu; the other nodes have 2 cpu; node a is cordoned (kubectl uncordon a)",
    }
    await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"unschedulable": None}})
    await stage.until_pods("job-worker-0", "job-worker-1")


async def test_a_job_waits_for_a_node_under_pressure_until_that_has_passed(stage: Stage) -> None:
    await stage.node("a")
    taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
    await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"taints": [taint]}})
    stage.start_operator()
    await stage.submit("job", Worker=group(1))
    await stage.world.until(lambda: "wait" in stage.admission("job"))

    assert stage.admission("job")["wait"] == {
        "code": "NodesAway",
        "message": "all nodes that may run it are unavailable: node a has the taint node.kubernetes.io/memory-pressure",
    }
    await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"taints": None}})
    await stage.until_pods("job-worker-0")


async def test_a_job_that_is_spread_by_taints_waits_for_a_node_under_pressure(stage: Stage) -> None:
    await stage.node("a")
    taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
    changes = {"metadata": {"labels": {"kubernetes.io/hostname": "a"}}, "spec": {"taints": [taint]}}
    await stage.world.client.patch(NODES, Key("", "a"), changes)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "job"}},
    }
    asked = group(1)
    asked["template"]["spec"]["topologySpreadConstraints"] = [spread]
    stage.start_operator()
    await stage.submit("job", Worker=asked)
    await stage.world.until(lambda: "wait" in stage.admission("job"))

    assert stage.admission("job")["wait"]["code"] == "NodesAway"
    await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"taints": None}})
    await stage.until_pods("job-worker-0")


async def test_a_job_that_no_node_may_run_is_told_what_the_nodes_lack(stage: Stage) -> None:
    await stage.node("a")
    await stage.node("b")
    stage.start_operator()
    worker = group(1)
    worker["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    await stage.submit("job", Worker=worker)
    await stage.world.until(lambda: "wait" in stage.admission("job"))

    words = "no node may run a worker: nodes a, b: it has no label disk=ssd"
    assert stage.admission("job")["wait"] == {"code": "NeverFits", "message": words, "cause": "NoEligibleNode"}
