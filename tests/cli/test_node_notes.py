"""What `run` says of the nodes of this machine: CPU requests that are only shares, and a variable without effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarragon.cli.jobs.node_notes import cpu_shares_note, other_nodes_note
from tarragon.kube.core import Node, NodeStatus
from tarragon.kube.meta import ObjectMeta
from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(300)

SHARES = {"tarragon.dev/overcommit": "cpu,hostPorts"}


def node(name: str = "local", *, annotations: dict[str, str] = SHARES, **amounts: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, annotations=annotations), status=NodeStatus(allocatable={"cpu": "2", **amounts})
    )


def test_more_cpus_than_there_are_are_noted_where_they_are_shares() -> None:
    said = cpu_shares_note(1_000_000, [node()], 2)

    assert said.startswith("note: the job's replicas request 1,000 CPUs in all, this machine has 2: ")
    assert cpu_shares_note(2_000, [node()], 2) == ""
    assert cpu_shares_note(1_000_000, [node(annotations={})], 2) == ""


@pytest.mark.parametrize(
    ("wanted", "is_other"),
    [
        ("", False),
        ("name=a,cpu=2,memory=1Gi", False),
        ("name=a,cpu=4,memory=1Gi", True),
        ("name=b,cpu=2,memory=1Gi", True),
        ("name=a,cpu=2,memory=1Gi name=b,cpu=2,memory=1Gi", True),
        ("nonsense", True),
    ],
)
def test_nodes_in_the_variable_that_the_cluster_does_not_have_are_noted(wanted: str, is_other: bool) -> None:  # noqa: FBT001
    assert bool(other_nodes_note(wanted, [node("a", memory="1Gi", pods="500")])) is is_other


def test_run_says_that_cpus_are_shares_and_that_the_variable_has_no_effect(shell: Shell) -> None:
    shell.file("train.py", "print(1)")
    first = shell("run", "train.py", "--cpu", "1000")
    second = replace(shell, variables={"TARRAGON_UP_NODE": "name=a,cpu=2,memory=1Gi"})("run", "train.py")

    assert (first.code, second.code) == (0, 0)
    assert "request 1,000 CPUs in all" in first.err
    assert "TARRAGON_UP_NODE" not in first.err
    assert "note: TARRAGON_UP_NODE has no effect" in second.err


def test_a_variable_that_is_in_effect_is_not_noted(shell: Shell) -> None:
    shell.file("train.py", "print(1)")
    configured = replace(shell, variables={"TARRAGON_UP_NODE": "name=a,cpu=2,memory=1Gi"})

    assert configured("run", "train.py").code == 0
    assert "TARRAGON_UP_NODE" not in configured("run", "train.py").err
