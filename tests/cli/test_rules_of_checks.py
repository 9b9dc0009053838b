"""Rule 17: what check says of rights, schedulers and storage."""

from __future__ import annotations

from tarragon.cli.checks.features import check_gang_schedulers, check_storage_classes
from tarragon.cli.checks.nodes import check_hami, check_nodes
from tarragon.cli.checks.permissions import operator_findings, operator_questions, user_findings, user_questions
from tarragon.kube.core import Node, NodeStatus, PodCondition
from tarragon.kube.meta import ObjectMeta
from tests.hami import REGISTER, registered


def storage(name: str, *, is_default: bool = False, mode: str = "Immediate") -> dict[str, object]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "volumeBindingMode": mode}


def test_rule_17_who_may_only_look_is_told_the_commands_that_change_and_not_those_that_look() -> None:
    answers = {question: question.verb in {"get", "list", "watch"} for question in user_questions("default")}

    text = next(iter(user_findings(answers))).text

    assert text.endswith("needed by run, submit, suspend, resume, scale and delete")


def test_who_may_not_watch_reads_which_commands_wait() -> None:
    answers = {question: question.verb != "watch" for question in user_questions("default")}

    assert next(iter(user_findings(answers))).text.endswith("needed by run, wait and list -w")


def test_a_subresource_is_spelled_as_kubectl_spells_it() -> None:
    answers = {
        question: question.permission.resource != "tfjobs/status" for question in operator_questions("tarragon-system")
    }

    texts = [finding.text for finding in operator_findings(answers)]

    assert texts
    assert all(" tfjobs.kubeflow.org/status, " in text or "mlkube.io/status" in text for text in texts)


def test_rule_17_gang_schedulers_are_seen_by_their_groups() -> None:
    assert check_gang_schedulers({"apps"}).text == "Tarragon schedules gangs itself; no other gang scheduler found"
    assert (
        "Volcano and Kueue are also installed"
        in check_gang_schedulers({"scheduling.volcano.sh", "kueue.x-k8s.io"}).text
    )


def test_storage_classes_are_told_with_what_a_claim_will_meet() -> None:
    assert check_storage_classes(None).level == "ok"
    assert check_storage_classes([]).level == "warning"
    assert check_storage_classes([storage("slow")]).remedy == "set spec.storageClassName in each claim"
    found = check_storage_classes([storage("fast", is_default=True, mode="WaitForFirstConsumer"), storage("slow")])
    assert (found.level, found.text) == ("ok", "2 storage classes: fast (default, WaitForFirstConsumer) and slow")


def gpu_node(name: str, annotations: dict[str, str] | None = None, sharing: str = "") -> Node:
    labels = {"tarragon.dev/gpu-sharing": sharing} if sharing else {}
    status = NodeStatus(
        allocatable={"cpu": "8", "nvidia.com/gpu": "20"}, conditions=[PodCondition(type="Ready", status="True")]
    )
    return Node(metadata=ObjectMeta(name=name, labels=labels, annotations=annotations or {}), status=status)


def test_the_gpus_of_hami_are_counted_once_and_its_nodes_are_named() -> None:
    both = [gpu_node(name, {REGISTER: registered(name, 2)}) for name in ("a", "b")]

    assert check_nodes(both).text == "2 nodes with 16 CPUs, 0 GiB, 4 nvidia.com/gpu"
    (found,) = check_hami(both)
    assert found.level == "ok"
    assert (
        found.text == "HAMi shares those of node a and 1 more: pods with GPUs go through its scheduler hami-scheduler"
    )


def test_a_node_on_which_hami_reports_no_gpu_is_a_warning() -> None:
    (found,) = check_hami([gpu_node("a", sharing="hami"), gpu_node("b")])

    assert found.level == "warning"
    assert found.text == "HAMi reports none that works on node a: jobs get no GPUs there"
