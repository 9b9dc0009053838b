"""What `tarragon check` says of what it was told: whose kinds, whose permissions, who is at work."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tarragon.cli.checks.crds import compare_crd, missing_crd
from tarragon.cli.checks.nodes import check_nodes
from tarragon.cli.checks.operators import check_operators
from tarragon.cli.checks.permissions import operator_findings, operator_questions, user_findings, user_questions
from tarragon.cli.output.finding import Finding, finding_lines
from tarragon.cli.output.style import uncolored
from tarragon.client.leader_election import Lease, LeaseSpec
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import Node, NodeSpec, NodeStatus, PodCondition
from tarragon.kube.meta import ObjectMeta
from tarragon.operator.coexistence.detection import (
    ClusterState,
    LeaderElectionLock,
    LeaderElectionLockSpec,
    OperatorDeployment,
)

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
KUBEFLOWS = {
    "metadata": {"name": "tfjobs.kubeflow.org", "annotations": {"controller-gen.kubebuilder.io/version": "v0.14.0"}},
    "spec": {
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": {"type": "object"}}}},
                "additionalPrinterColumns": [
                    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
                ],
            }
        ]
    },
}


@pytest.fixture
def stored() -> dict[str, Any]:
    """Our definition as a server gives it back: with defaults filled in."""
    definition: dict[str, Any] = copy.deepcopy(dict(TENSORFLOW.crd()))
    definition["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    definition["spec"]["preserveUnknownFields"] = False
    definition["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return definition


NO_OTHERS = ClusterState()


def renewed(seconds_ago: float, holder: str = "tarragon-1_a", namespace: str = "tarragon-system") -> Lease:
    when = format_micro_time(NOW - dt.timedelta(seconds=seconds_ago))
    return Lease(
        metadata=ObjectMeta(name="tarragon", namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, renew_time=when),
    )


def training_operator() -> LeaderElectionLock:
    return LeaderElectionLock(
        metadata=ObjectMeta(name="tf-operator", namespace="kubeflow", uid="l"),
        spec=LeaderElectionLockSpec(holder_identity="op-1", renew_time=format_micro_time(NOW)),
    )


def node(name: str, more: Mapping[str, str] = {}, *, ready: bool = True, unschedulable: bool = False) -> Node:
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    allocatable: dict[str, str | int | float] = {"cpu": "8", "memory": "16Gi", **more}
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(allocatable=allocatable, conditions=conditions),
    )


def test_our_own_definition_is_recognised_whatever_the_server_has_filled_in(stored: dict[str, Any]) -> None:
    finding = compare_crd(TENSORFLOW, stored)

    assert (finding.level, finding.topic) == ("ok", "TFJob")
    assert finding.text == "the CRD matches this version of Tarragon: v1, v1beta2, v1beta1, v1alpha2, v1alpha1"


def test_an_older_or_changed_one_of_ours_is_told_with_where_it_differs(stored: dict[str, Any]) -> None:
    del stored["spec"]["versions"][1]
    stored["spec"]["versions"][0]["additionalPrinterColumns"].pop()

    finding = compare_crd(TENSORFLOW, stored)

    assert finding.level == "warning"
    assert "v1 differs and v1beta2 is not served" in finding.text
    assert "kubectl apply -k deploy" in finding.remedy


def test_a_definition_is_told_to_be_older_or_newer_by_the_fields_that_only_one_has(stored: dict[str, Any]) -> None:
    newer = copy.deepcopy(stored)
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["wings"] = {"type": "object"}
    newer["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    del stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["runPolicy"]

    assert "from an older version of Tarragon: v1 differs" in compare_crd(TENSORFLOW, stored).text
    assert "from a newer version of Tarragon: v1 differs" in compare_crd(TENSORFLOW, newer).text


def test_a_downgrade_says_what_the_older_version_will_not_read(stored: dict[str, Any]) -> None:
    fields = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["wings"] = {"type": "object", "properties": {"left": {"type": "string"}}}
    stored["spec"]["versions"][0]["additionalPrinterColumns"].pop()

    remedy = compare_crd(TENSORFLOW, stored).remedy

    assert "is a downgrade" in remedy
    assert remedy.endswith("which this version does not read: spec.wings")


def test_kubeflows_is_recognised_and_cannot_hold_what_we_write() -> None:
    finding = compare_crd(TENSORFLOW, KUBEFLOWS)

    assert finding.level == "error"
    assert finding.text.startswith("the CRD is from Kubeflow: it drops status.tarragon")
    assert "existing jobs are kept" in finding.remedy


def test_one_that_keeps_every_field_is_nobodys_business_to_replace(stored: dict[str, Any]) -> None:
    definition = copy.deepcopy(KUBEFLOWS)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}  # type: ignore[index]

    assert compare_crd(TENSORFLOW, definition).level == "warning"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}, "is being deleted"),
        (
            {"status": {"conditions": [{"type": "NamesAccepted", "status": "False", "message": "tfjobs is taken"}]}},
            "not served: tfjobs is taken",
        ),
    ],
)
def test_a_definition_that_serves_nobody_is_an_error(change: dict[str, Any], words: str) -> None:
    finding = compare_crd(TENSORFLOW, {**TENSORFLOW.crd(), **change})

    assert finding.level == "error"
    assert words in finding.text


def test_whoever_may_do_everything_is_told_so_a_line_for_each_kind() -> None:
    findings = list(user_findings(dict.fromkeys(user_questions("research"), True)))

    assert {finding.level for finding in findings} == {"ok"}
    assert findings[0].text == "may create, get, list, watch, patch and delete tfjobs.kubeflow.org"
    assert all(question.namespace == "research" for question in user_questions("research"))


def test_a_viewer_is_told_what_a_viewer_cannot_do_and_who_can_change_it() -> None:
    answers = {question: question.verb in {"get", "list", "watch"} for question in user_questions("default")}

    findings = list(user_findings(answers))

    optional = ["warning"] * (len(FRAMEWORKS) - 1)
    assert [finding.level for finding in findings] == ["error", *optional, "ok", "ok", "ok"]
    assert findings[0].text.startswith("may not create, patch and delete tfjobs.kubeflow.org, only get, list and watch")
    assert "edit" in findings[0].remedy


def test_without_logs_jobs_are_still_possible() -> None:
    answers = {question: question.permission.resource != "pods/log" for question in user_questions("default")}

    findings = [finding for finding in user_findings(answers) if finding.level != "ok"]

    assert [(finding.level, finding.text) for finding in findings] == [
        ("warning", "may not get pods/log: needed by run and logs")
    ]


def test_what_the_operator_lacks_is_told_with_its_reason() -> None:
    everything = dict.fromkeys(operator_questions("tarragon-system"), True)
    without = {question: question.permission.resource != "nodes" for question in everything}

    assert [finding.level for finding in operator_findings(everything)] == ["ok"]
    [lacking] = operator_findings(without)
    assert lacking.level == "warning"
    assert lacking.text == (
        "no permission to list and watch nodes, to place gangs by the capacity of each node; without it, placement is "
        "left to kube-scheduler: no gangs, no queue"
    )


def test_an_operator_is_at_work_when_its_lease_is_fresh() -> None:
    first, others = check_operators([renewed(4000, "old", "elsewhere"), renewed(2.0)], NO_OTHERS, NOW)

    text = "tarragon-1_a is running: it renewed the Lease in tarragon-system 2.0 s ago"
    assert first == Finding("ok", "operator", text)
    assert others.level == "ok"


def test_clocks_that_differ_by_seconds_are_no_reason_for_alarm() -> None:
    first, _ = check_operators([renewed(-20.0)], NO_OTHERS, NOW)

    assert first.level == "ok"


def test_with_no_operator_at_work_no_job_gets_anywhere() -> None:
    never, _ = check_operators([], NO_OTHERS, NOW)
    gone, _ = check_operators([renewed(300.0)], NO_OTHERS, NOW)
    given_back, _ = check_operators([renewed(1.0, holder="")], NO_OTHERS, NOW)

    assert {never.level, gone.level, given_back.level} == {"error"}
    assert "its Lease does not exist" in never.text
    assert "tarragon-1_a, renewed its Lease in tarragon-system 5 min 0 s ago" in gone.text
    assert "released its Lease" in given_back.text


def deployed(wanted: int, available: int) -> ClusterState:
    body = {
        "metadata": {
            "name": "tarragon",
            "namespace": "tarragon-system",
            "labels": {"app.kubernetes.io/name": "tarragon"},
        },
        "spec": {"replicas": wanted},
        "status": {"availableReplicas": available},
    }
    return ClusterState(deployments=[msgspec.convert(body, OperatorDeployment)])


@pytest.mark.parametrize(
    ("wanted", "available", "text", "remedy"),
    [
        (2, 0, "is there, but none of its 2 pods is available", "describe pods -l app.kubernetes.io/name=tarragon"),
        (1, 0, "is there, but its pod is not available", "describe pods -l app.kubernetes.io/name=tarragon"),
        (0, 0, "is scaled to 0", "scale deployment tarragon --replicas=1"),
        (2, 1, "has 1 running pod, of which none holds the Lease", "logs deployment/tarragon shows why"),
    ],
)
@pytest.mark.parametrize("leases", [[], [renewed(300.0)]], ids=["never", "earlier"])
def test_an_operator_that_is_installed_and_does_not_run_is_not_to_be_installed(
    leases: list[Lease], wanted: int, available: int, text: str, remedy: str
) -> None:
    first, _ = check_operators(leases, deployed(wanted, available), NOW)

    assert first.level == "error"
    assert first.text.endswith(f"; Deployment tarragon-system/tarragon {text}")
    assert first.remedy.startswith(f"kubectl -n tarragon-system {remedy}")


def test_who_may_not_list_deployments_is_told_that_one_may_be_there() -> None:
    first, _ = check_operators([], ClusterState(unreadable={"Deployments": "forbidden"}), NOW)

    assert first.remedy.startswith("install it with kubectl apply -k deploy")
    assert "you may not list Deployments" in first.remedy


def test_two_leases_are_told_as_they_may_be_two_leaders() -> None:
    first, _ = check_operators([renewed(2.0), renewed(3.0, "other", "elsewhere")], NO_OTHERS, NOW)

    assert first.level == "warning"
    assert first.text.endswith("2.0 s ago; so did other in elsewhere")


def test_another_training_operator_is_named_and_keeps_the_jobs_itself() -> None:
    first, rival = check_operators([], ClusterState(leases=[training_operator()]), NOW)

    assert first.level == "ok"
    assert rival.level == "warning"
    assert rival.text.startswith("tf-operator (Lease kubeflow/tf-operator, held by op-1) is running")


def test_what_may_not_be_looked_at_is_not_said_to_be_absent() -> None:
    first, others = check_operators(None, ClusterState(unreadable={"Deployments": "forbidden"}), NOW)

    assert (first.level, others.level) == ("ok", "ok")
    assert "you may not read Leases" in first.text
    assert "you may not list Deployments" in others.text


def test_nodes_are_counted_that_take_pods() -> None:
    found = check_nodes(
        [
            node("a", {"nvidia.com/gpu": "4"}),
            node("b", ready=False),
            node("c", unschedulable=True),
            node("d", {"odd": "?"}),
        ]
    )

    assert found == Finding("ok", "nodes", "2 nodes of 4 with 16 CPUs, 32 GiB, 4 nvidia.com/gpu")
    assert check_nodes([node("a", ready=False)]).level == "warning"
    assert check_nodes([]).text == "the cluster has no nodes: jobs wait until it has one"


def test_a_remedy_stands_below_its_finding() -> None:
    assert list(finding_lines(Finding("warning", "nodes", "there is none", "kubectl get nodes"), uncolored)) == [
        "warning  nodes       there is none",
        "                      kubectl get nodes",
    ]


def test_a_kind_that_a_cluster_may_do_without_is_no_fault() -> None:
    assert missing_crd(TENSORFLOW).level == "error"
    found = missing_crd(MLKUBE)

    assert (found.level, found.topic) == ("ok", "TfJob")
    assert found.text == "tfjobs.mlkube.io is not installed: only TfJobs need it"


@pytest.mark.parametrize("framework", [MLKUBE, MPI], ids=lambda each: each.resource.full_name)
def test_rights_to_a_kind_that_a_cluster_may_do_without_are_no_condition(framework: Framework) -> None:
    kind = framework.resource.group, framework.resource.plural
    answers = {
        question: (question.permission.group, question.permission.resource) != kind
        for question in user_questions("default")
    }

    assert {finding.level for finding in user_findings(answers)} == {"ok", "warning"}
