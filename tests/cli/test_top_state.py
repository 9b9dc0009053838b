from __future__ import annotations

from dataclasses import replace

import pytest

from tarragon.cli.top.job_rows import JobKey
from tarragon.cli.top.keys import KeyDecoder
from tarragon.cli.top.page_state import Action, PageState, Panel, SelectableRows, clamp, press
from tarragon.kube.meta import Key

JOBS: list[JobKey] = [("TFJob", Key("default", name)) for name in ("a", "b", "c", "d")]
ROWS = SelectableRows(jobs=JOBS, index_of={key: place for place, key in enumerate(JOBS)}, replicas=3, nodes=2, page=2)
BEGIN = clamp(PageState(), ROWS)


def after(*keys: str, place: PageState = BEGIN, rows: SelectableRows = ROWS) -> PageState:
    for key in keys:
        result = press(place, key, rows)
        assert isinstance(result, PageState)
        place = clamp(result, rows)
    return place


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"jq", ["j", "q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\r\t\x7f", ["enter", "tab", "backspace"]),
        ("ü".encode(), ["ü"]),
        (b"\x1b[99;99X", []),
    ],
)
def test_what_a_terminal_sends_is_the_name_of_a_key(data: bytes, keys: list[str]) -> None:
    assert KeyDecoder().feed(data) == keys


def test_a_key_that_comes_in_pieces_over_a_slow_line_is_one_key() -> None:
    keys = KeyDecoder()

    assert keys.feed(b"\x1b") == []
    assert keys.is_incomplete
    assert keys.feed(b"[") == []
    assert keys.feed(b"B") == ["down"]
    assert not keys.is_incomplete


def test_escape_alone_is_a_key_when_nothing_follows_it() -> None:
    keys = KeyDecoder()
    keys.feed(b"\x1b")

    assert keys.flush() == ["esc"]
    assert keys.flush() == []


def test_the_first_job_is_the_chosen_one_until_somebody_moves() -> None:
    assert BEGIN.job == JOBS[0]
    assert after("j", "down").job == JOBS[2]
    assert after("G", "k").job == JOBS[2]
    assert after("pagedown").job == JOBS[2]
    assert after("k").job == JOBS[0]


def test_the_chosen_job_stays_the_chosen_one_when_rows_move_around_it() -> None:
    place = after("j")
    newer: list[JobKey] = [("TFJob", Key("default", "new")), *JOBS]

    assert clamp(place, SelectableRows(jobs=newer, index_of={key: at for at, key in enumerate(newer)})).job == JOBS[1]


def test_the_first_row_takes_the_place_of_a_chosen_job_that_is_gone() -> None:
    rows = SelectableRows(jobs=JOBS[:2], index_of={key: at for at, key in enumerate(JOBS[:2])})

    assert clamp(after("G"), rows).job == JOBS[0]
    assert clamp(after("G"), SelectableRows()).job is None


def test_tab_goes_through_the_panels_that_have_rows_and_escape_comes_back() -> None:
    assert after("tab").panel is Panel.REPLICAS
    assert after("tab", "tab").panel is Panel.NODES
    assert after("tab", "tab", "tab").panel is Panel.JOBS
    assert after("tab", "esc").panel is Panel.JOBS
    assert after("tab", rows=replace(ROWS, replicas=0)).panel is Panel.NODES


def test_the_arrows_move_in_the_panel_that_has_the_keys() -> None:
    place = after("tab", "j", "j", "j")

    assert place.replica == 2
    assert place.job == JOBS[0]


def test_another_job_has_its_first_replica_chosen() -> None:
    assert after("tab", "j", "esc", "j").replica == 0


def test_what_is_typed_behind_a_slash_filters_at_once_and_keys_mean_letters_there() -> None:
    place = after("/", "q", "x")

    assert place.filter_input == place.filter == "qx"
    assert after("backspace", place=place).filter == "q"
    assert after("enter", place=place).filter == "qx"
    assert after("enter", place=place).filter_input is None
    assert after("esc", place=place).filter == ""


def test_s_goes_through_the_orders_and_r_reverses_them() -> None:
    assert after("s").sort == "name"
    assert after("s", "s", "s", "s", "s").sort == "age"
    assert after("r").is_reversed
    assert not after("r", "s").is_reversed


def test_other_keys_are_wishes_or_nothing() -> None:
    assert press(BEGIN, "enter", ROWS) is Action.LOGS
    assert press(BEGIN, "q", ROWS) is Action.QUIT
    assert press(BEGIN, "Z", ROWS) == BEGIN
