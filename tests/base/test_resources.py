from __future__ import annotations

from tarragon.base.resources import add_resources, fits, maximum, shortage, subtract


def test_a_resource_that_nobody_asks_for_is_never_short() -> None:
    assert fits({"cpu": 0, "nvidia.com/gpu": 0}, {"cpu": -5})


def test_a_resource_that_is_not_there_is_short() -> None:
    assert shortage({"nvidia.com/gpu": 1000}, {"cpu": 4000}) == {"nvidia.com/gpu": 1000}


def test_an_oversold_node_is_short_of_no_more_than_what_is_asked() -> None:
    assert shortage({"cpu": 1000}, {"cpu": -3000}) == {"cpu": 1000}


def test_sums_and_differences_go_name_by_name() -> None:
    assert add_resources([{"cpu": 1}, {"cpu": 2, "memory": 3}]) == {"cpu": 3, "memory": 3}
    assert subtract({"cpu": 1}, {"memory": 2}) == {"cpu": 1, "memory": -2}
    assert maximum({"cpu": 1, "memory": 5}, {"cpu": 2}) == {"cpu": 2, "memory": 5}
