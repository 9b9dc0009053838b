"""The table of defects names tests that there are, and every test of this folder is in it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.defects.table import DEFECTS, Defect

ROOT = Path(__file__).parents[2]

BESIDE = frozenset(
    {
        "test_a_suspended_job_uses_up_no_time_to_run",
        "test_a_pod_whose_sidecar_is_being_stopped_stays_for_its_logs_when_the_job_ends",
        "test_a_clock_that_is_set_back_delays_a_deadline_by_no_more_than_it_was_set_back",
    }
)
"""Tests of what the old operators did right, or what came after their time, next to what they did wrong."""


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.source}: {defect.what}")
def test_every_defect_has_a_test_that_there_is(defect: Defect) -> None:
    assert defect.tests
    for test in defect.tests:
        path, _, name = test.partition("::")
        assert name in names_in(ROOT / path), test


def test_every_test_of_a_defect_stands_in_the_table() -> None:
    named = {test.partition("::")[2] for defect in DEFECTS for test in defect.tests}
    here = {
        name
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != "test_table.py"
        for name in names_in(path)
    }

    assert here - named - BESIDE == set()
