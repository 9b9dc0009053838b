"""The tables of codes on docs/scheduling.md: every one of the source, and none that the source does not know."""

from __future__ import annotations

import re
from itertools import takewhile

from tarragon.plan.lifecycle import gang_restart, start_timeout
from tarragon.plan.nodes import left_to_kube_scheduler
from tarragon.plan.status import creation_failures
from tarragon.plan.view import actions
from tarragon.scheduling.api import decision
from tests.docs.markdown import ROOT

TEXT = (ROOT / "docs" / "scheduling.md").read_text()
SECTION = TEXT.partition("## Why a job waits\n")[2].partition("\n## ")[0]
OF_PLACES = {
    actions.REFUSED,
    actions.REFUSED_FOR_GATES,
    actions.NAME_TAKEN,
    start_timeout.MOVED_TOO_OFTEN,
    left_to_kube_scheduler.LEFT_TO_KUBE_SCHEDULER,
}
OF_SIZES = {
    gang_restart.NEEDS_RESTART,
    gang_restart.WAITS_FOR_CAPACITY,
    gang_restart.REPLICAS_FINISHED,
    decision.QUOTA_EXCEEDED,
}


def codes_of(module: object) -> set[str]:
    values = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return {value for value in values if re.fullmatch(r"[A-Z][A-Za-z]+", value)}


def tables() -> list[dict[str, list[str]]]:
    """Of each, the cells after the code."""
    found = []
    for table in SECTION.split("| code | meaning | what to do |")[1:]:
        body = takewhile(lambda line: line.startswith("|"), table.strip().splitlines())
        rows = [line.split("|")[1:-1] for line in body]
        found.append({row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows[1:]})
    return found


def test_every_code_of_the_scheduler_has_its_row_and_every_row_its_code() -> None:
    of_scheduler, of_places, of_sizes = tables()

    assert set(of_scheduler) == codes_of(decision)
    assert set(of_places) == OF_PLACES | codes_of(creation_failures) - codes_of(decision)
    assert set(of_sizes) == OF_SIZES


def test_every_row_says_what_to_do() -> None:
    for table in tables():
        assert all(len(cells) == 2 and all(cells) for cells in table.values())


def test_every_code_of_the_scheduler_stands_on_the_page_of_the_status_too() -> None:
    page = (ROOT / "docs" / "status.md").read_text()

    assert {code for code in codes_of(decision) if f"`{code}`" not in page} == set()
