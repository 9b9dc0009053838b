from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tarragon.kube.meta import ObjectMeta, OwnerReference
from tarragon.kube.scheduling.cpu_peers import CPU_PEERS_ANNOTATION
from tarragon.localcluster.kubelet.base.spec import Pod, PodSpec
from tarragon.localcluster.kubelet.pod.threads import sharing_groups, thread_share
from tests.localcluster.kubelet.builders import container

CORES = 8


def pod(uid: str, *, owner: str = "", peers: str = "", phase: str = "Running", cpu: str = "", **more: Any) -> Pod:
    """A pod with one container, of the job `owner`."""
    references = [OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name=owner, uid=owner, controller=True)]
    annotations = {CPU_PEERS_ANNOTATION: peers} if peers else {}
    resources: Mapping[str, Any] = {"requests": {"cpu": cpu}} if cpu else {}
    return Pod(
        metadata=ObjectMeta(
            uid=uid, namespace="default", annotations=annotations, owner_references=references if owner else [], **more
        ),
        spec=PodSpec(containers=[container(resources=resources)]),
        status={"phase": phase},
    )


def share(mine: Pod, pods: Iterable[Pod]) -> int:
    """The share of a pod on the node of these pods."""
    counts = Counter(group for each in pods for group in sharing_groups(each))
    return thread_share(mine, counts.__getitem__, CORES)


def test_a_pod_alone_has_all_cores() -> None:
    alone = pod("a")

    assert share(alone, [alone]) == CORES


def test_replicas_share_the_cores_also_with_those_that_do_not_exist_yet() -> None:
    first = pod("a", owner="digits", peers="4")

    assert share(first, [first]) == 2


def test_pods_of_a_controller_that_counts_none_share_with_those_that_exist() -> None:
    pods = [pod("a", owner="set"), pod("b", owner="set")]

    assert share(pods[0], pods) == 4


def test_a_job_that_starts_beside_another_leaves_it_its_part() -> None:
    before = [pod("a", owner="old", peers="2"), pod("b", owner="old", peers="2")]
    late = pod("c", owner="new", peers="2")

    assert share(late, [*before, late]) == 2


def test_a_pod_that_the_node_has_not_seen_yet_counts_itself() -> None:
    before = [pod("a", owner="set"), pod("b")]

    assert share(pod("c", owner="set"), before) == 2


def test_a_pod_of_which_only_one_container_sets_cpus_shares_with_the_others() -> None:
    mine = pod("a", owner="set", cpu="1")

    assert share(mine, [mine, pod("b", owner="set"), pod("c")]) == 2


@pytest.mark.parametrize(
    "other",
    [pod("b", phase="Succeeded"), pod("b", deletion_timestamp="2026-01-01T00:00:00Z"), pod("b", cpu="4")],
    ids=["ended", "ending", "requests CPUs"],
)
def test_pods_that_end_or_request_cpus_take_no_share(other: Pod) -> None:
    mine = pod("a")

    assert share(mine, [mine, other]) == CORES


def test_no_share_is_less_than_one_thread() -> None:
    mine = pod("a", owner="digits", peers="100")

    assert share(mine, [mine]) == 1


@pytest.mark.parametrize("peers", ["0", "-1", "x", "1e9", "9" * 30])
def test_a_count_that_tarragon_has_not_written_is_ignored(peers: str) -> None:
    mine = pod("a", owner="digits", peers=peers)

    assert share(mine, [mine]) == CORES
