from __future__ import annotations

from tarragon.operator.informers.pod_usage import NodeSums


def test_what_was_given_and_taken_again_leaves_nothing_behind() -> None:
    """Nodes come and go by the thousand where machines are rented by the minute."""
    sums = NodeSums()
    for number in range(3):
        sums.add(f"n{number}", {"cpu": 1000, "pods": 1000})
    sums.add("n0", {"cpu": 500, "pods": 1000})
    for number in range(3):
        sums.subtract(f"n{number}", {"cpu": 1000, "pods": 1000})

    assert len(sums) == 1
    assert sums.on("n0") == {"cpu": 500, "pods": 1000}
    assert sums.on("n1") == {}


def test_an_amount_of_nothing_is_not_remembered() -> None:
    sums = NodeSums()
    sums.add("n", {"cpu": 0})

    assert len(sums) == 0
