"""A v1alpha1 job, whatever happens to its pods, and wherever the operator dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frameworks.jobs import template
from tests.frameworks.listed_jobs import item, listed
from tests.plan.world import World

DECISIVE = {0: "Succeeded", 1: "Failed", 139: "Failed"}
"""Of the master's exit codes; 137 and 143 are tried again."""

happenings = st.tuples(
    st.sampled_from(["master-0", "worker-0", "worker-1", "ps-0"]),
    st.sampled_from(["run", "end", "disrupt", "delete", "vanish"]),
    st.sampled_from([0, 1, 137, 139, 143]),
    st.integers(0, 4),
)
"""To whom, what, with which exit code if it ends, and after how many writes the operator then dies."""


def job(policy: str) -> dict[str, Any]:
    made = {"spec": {**template()["spec"], "restartPolicy": policy}}
    return listed(item("MASTER", template=made), item("WORKER", replicas=2, template=made), {"tfReplicaType": "PS"})


def end(world: World, name: str, code: int) -> None:
    """For good, or at once followed by a new try of the kubelet, as the pod's restartPolicy has it."""
    policy = world.pods[name]["spec"]["restartPolicy"]
    if policy == "Always" or (policy == "OnFailure" and code):
        times = world.pods[name]["status"]["containerStatuses"][0]["restartCount"]
        world.restart_in_place(name, times + 1, code)
    else:
        world.exit(name, code)


def happens(world: World, replica: str, what: str, code: int) -> bool:
    """Whether anything could happen: there is such a pod, and it is in the phase for it."""
    kind, index = replica.split("-")
    name = next((name for name in world.own_pods() if f"-{kind}-" in name and name.split("-")[-2] == index), None)
    phase = world.pods[name]["status"]["phase"] if name is not None else ""
    if name is None or phase != ("Pending" if what == "run" else "Running"):
        return False
    acts: dict[str, Callable[[str], None]] = {
        "run": world.run,
        "disrupt": world.disrupt,
        "delete": world.delete_pod,
        "vanish": world.vanish,
    }
    if what == "end":
        end(world, name, code)
    else:
        acts[what](name)
    return True


@settings(max_examples=100)
@given(st.sampled_from(["Never", "OnFailure", "Always"]), st.lists(happenings, max_size=20))
def test_the_first_decisive_end_of_the_master_decides_and_nothing_else_does(
    policy: str, story: list[tuple[str, str, int, int]]
) -> None:
    world = World(job(policy))
    world.settle()
    world.admit()
    world.settle()
    expected = ""
    for replica, what, code, writes in story:
        if happens(world, replica, what, code) and (replica, what) == ("master-0", "end"):
            expected = expected or DECISIVE.get(code, "")
        world.step(writes)
        world.settle()
        world.pass_time(120)
        world.settle()

        status = world.job["status"]
        assert (status["phase"] == "Done") == bool(expected)
        assert status["state"] == (expected or "Running")
        for each, wish in zip(status["replicaStatuses"], (1, 2, 1), strict=True):
            assert sum(each["ReplicasStates"].values()) <= wish
            assert not expected or "Running" not in each["ReplicasStates"]
    if expected:
        assert all(pod["status"]["phase"] in {"Succeeded", "Failed"} for pod in world.pods.values())
        assert world.services == {}
    else:
        assert len(world.own_pods()) + len(world.status.succeeded_replicas) >= 4
