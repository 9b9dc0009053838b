from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tarragon.base.escaping import STYLE_ESCAPE
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS
from tarragon.cli.jobview.jobs import read_job
from tarragon.cli.output.style import colored, uncolored, without_colors
from tarragon.cli.output.wrapping import cell_width, wrap
from tarragon.cli.top.job_rows import JobRow, filter_and_sort, job_row
from tarragon.cli.top.metrics_line import training_progress
from tarragon.cli.top.node_rows import NodeRequests, NodeRow, format_bytes, node_rows
from tarragon.cli.top.page import key_help, render_page
from tarragon.cli.top.page_state import PageState, Panel
from tarragon.cli.top.table import Column, TableRow, render_table
from tarragon.cli.top.view import Frame, ReplicaRow, View, panel_heights
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.log_progress import LogProgress
from tarragon.kube.codec import decode, format_time
from tarragon.kube.core import Container, Node, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from tarragon.kube.meta import CustomObject, ObjectMeta
from tests.cli import manifests
from tests.cli.scenes import BEGIN, at

NOW = at(300)
SMALL = Frame(width=80, height=24, now=NOW)
LARGE = Frame(width=200, height=50, now=NOW)
LOCAL = NodeRow(
    name="local", state="Ready", allocatable={CPU: 4000, MEMORY: 24 * 2**30 * 1000, PODS: 500_000}, requested={}
)


def job(name: str, workers: int = 2, gpus: int = 0) -> JobRow:
    limits = {"resources": {"limits": {NVIDIA_GPU: gpus}}} if gpus else {}
    manifest = json.loads(manifests.worker(name, "pass", workers, **limits))
    manifest["metadata"] |= {"namespace": "default", "uid": name, "creationTimestamp": format_time(BEGIN)}
    return job_row(read_job(FRAMEWORKS[0], decode(json.dumps(manifest), CustomObject)))


def view(entries: Sequence[JobRow], **facts: Any) -> View:
    base = View(
        target="local (/home/me/.tarragon)",
        namespace="default",
        entries=entries,
        index_of={each.key: place for place, each in enumerate(entries)},
        counts={"Waiting": len(entries)} if entries else {},
        nodes=[LOCAL],
        hint="Submit one with `tarragon run FILE`.",
    )
    return replace(base, **facts)


def rows(shown: View, place: PageState | None = None, frame: Frame = SMALL) -> list[str]:
    return render_page(shown, place or PageState(job=shown.entries[0].key if shown.entries else None), frame, uncolored)


def replica(index: int, **facts: Any) -> ReplicaRow:
    row = ReplicaRow(
        name=f"worker-{index}", type="worker", state="Running", state_text="Running", restarts=0, node="local"
    )
    return replace(row, **facts)


@pytest.mark.parametrize(
    "frame", [SMALL, LARGE, replace(SMALL, width=40, height=12), replace(SMALL, width=20, height=5)]
)
def test_the_page_fills_the_terminal_and_no_row_is_wider_than_it(frame: Frame) -> None:
    many = [job(f"a-training-with-a-long-name-{number}", gpus=8) for number in range(60)]
    crowded = view(many, replicas=[replica(index, last_line="x" * 300) for index in range(20)], remarks=["no " * 60])

    drawing = rows(crowded, frame=frame)

    assert len(drawing) == frame.height
    assert max(map(cell_width, drawing)) <= frame.width


def test_names_of_asia_are_cut_by_the_columns_that_they_take() -> None:
    columns = [Column("NAME", min_width=4, max_width=10), Column("SAYS")]

    _, row = render_table(columns, [TableRow(["訓練訓練訓練訓練", "損失" * 20])], 24, uncolored)

    assert cell_width(row) <= 24


def test_colours_change_nothing_but_colours() -> None:
    shown = view(
        [job("a"), job("b")], replicas=[replica(0), replica(1, state="Failed", state_text="Failed, exit code 1")]
    )
    place = PageState(job=shown.entries[1].key)

    assert [without_colors(row) for row in render_page(shown, place, SMALL, colored)] == [
        row.rstrip() if not row.startswith(">") else row for row in render_page(shown, place, SMALL, uncolored)
    ]


def test_the_chosen_job_is_marked_by_a_sign_and_is_always_among_the_rows() -> None:
    many = [job(f"job-{number}") for number in range(100)]

    for number in (0, 50, 99):
        drawing = rows(view(many), PageState(job=many[number].key))
        assert [row.split()[1] for row in drawing if row.startswith("> ")] == [f"job-{number}"]


def test_columns_that_say_nothing_leave_their_room_where_there_is_little() -> None:
    small, large = rows(view([job("a")])), rows(view([job("a")]), frame=LARGE)

    assert small[2].split() == ["NAME", "STATE", "READY", "AGE", "PROGRESS", "OR", "REASON"]
    assert {"GPUS", "QUEUE", "RESTARTS", "KIND", "REPLICAS"} <= set(large[2].split())
    assert "GPUS" in rows(view([job("a", gpus=2)]))[2]


def test_a_small_terminal_shows_the_progress_rather_than_the_age() -> None:
    each = replace(job("a-training-with-a-name", gpus=2), reason="", restarts=1)
    said = "step 30/60 (50 %) · loss 0.2134"

    drawing = rows(view([each], progress={each.key: said}))

    assert said in drawing[3]
    assert "AGE" not in drawing[2]


def test_how_far_a_training_is_stands_beside_it() -> None:
    each = replace(job("a"), reason="")

    assert "epoch 3/10  loss 0.2" in rows(view([each], progress={each.key: "epoch 3/10  loss 0.2"}))[3]


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("INFO:tensorflow:loss = 0.31, step = 100 (0.9 sec)", "step 100 · loss 0.31"),
        ("Epoch 3/10", "2/10 epochs (20 %)"),
        ("step 20 loss: 0.7 accuracy: 0.91", "step 20 · loss 0.7"),
        ("done: loss=0.08 accuracy=0.97", "accuracy 0.97 · loss 0.08"),
        ("stepping down; 3 steps left, port=2222", ""),
        ("version 2.3.1", ""),
    ],
)
def test_the_numbers_of_a_line_are_how_far_a_training_is(line: str, progress: str) -> None:
    assert training_progress(LogProgress(), [line], at(0)) == progress


def test_the_newest_line_with_numbers_counts() -> None:
    lines = ["step 1 loss 0.9", "step 2 loss 0.8", "saving a checkpoint"]

    assert training_progress(LogProgress(), lines, at(0)) == "step 2 · loss 0.8"


def test_who_has_no_jobs_is_told_how_to_start_one_and_where_else_to_look() -> None:
    text = "\n".join(rows(view([])))

    assert "No jobs in namespace default; n shows all namespaces." in text
    assert "Submit one with `tarragon run FILE`." in text


def test_a_filter_that_nothing_fits_says_how_to_get_rid_of_it() -> None:
    text = "\n".join(rows(view([]), PageState(filter="nosuch")))

    assert "No jobs match “nosuch”; Esc clears the filter." in text


def test_a_cluster_that_is_gone_is_told_in_words_above_what_was_last_known() -> None:
    drawing = rows(view([job("a")], error="context prod does not answer; retrying"))

    assert drawing[1] == "! context prod does not answer; retrying"
    assert "a" in drawing[3].split()


def test_nodes_that_may_not_be_seen_are_told_in_their_place() -> None:
    text = "\n".join(rows(view([job("a")], nodes=[], remarks=["you may not list nodes here"])))

    assert "you may not list nodes here" in text


def test_jobs_keep_most_of_a_small_terminal_and_many_replicas_get_what_is_free() -> None:
    many = [job(f"job-{number}") for number in range(60)]
    replicas = [replica(index) for index in range(40)]

    assert panel_heights(view(many, replicas=replicas), 24).jobs >= 10
    assert panel_heights(view(many[:2], replicas=replicas), 50).replicas == 40


def test_the_keys_of_other_panels_do_not_light_the_job() -> None:
    shown = view([job("a")], replicas=[replica(0)])
    place = PageState(job=shown.entries[0].key, panel=Panel.REPLICAS)

    lit = [row for row in render_page(shown, place, SMALL, colored) if f"{STYLE_ESCAPE}[7m" in row]

    assert len(lit) == 1
    assert "worker-0" in lit[0]


def test_jobs_are_found_by_words_and_sorted_by_trouble() -> None:
    failed = replace(job("bad"), state="Failed")
    others = [replace(job("good"), state="Succeeded"), replace(job("new"), state="Running")]

    assert filter_and_sort([*others, failed], "", "state", is_reversed=False)[0] is failed
    assert [each.name for each in filter_and_sort([*others, failed], "tfjob goo", "age", is_reversed=False)] == ["good"]


def test_what_pods_ask_of_a_node_is_counted_until_they_end() -> None:
    container = Container(resources=ResourceRequirements(requests={"cpu": "500m", NVIDIA_GPU: 2}))
    running = Pod(spec=PodSpec(node_name="a", containers=[container]), status=PodStatus(phase="Running"))
    over = Pod(spec=running.spec, status=PodStatus(phase="Succeeded"))
    node = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(allocatable={"cpu": "4", NVIDIA_GPU: 8, "pods": 10}))
    requests = NodeRequests()

    requests.update(None, running)
    requests.update(None, running)
    requests.update(running, over)

    (machine,) = node_rows([node], requests, {})
    assert (machine.cpu, machine.gpus, machine.pods, machine.cpu_used) == ("0.5/4", "2/8", "1/10", "-")


@pytest.mark.parametrize(("bytes_", "text"), [(0, "0"), (3 * 2**20, "3Mi"), (3 * 2**29, "1.5Gi"), (64 * 2**30, "64Gi")])
def test_memory_is_told_in_few_characters(bytes_: int, text: str) -> None:
    assert format_bytes(bytes_ * 1000) == text


def test_long_lines_break_between_words_and_go_on_in_their_colour() -> None:
    line = "one two three four"

    assert list(wrap(line, 10)) == ["one two", "    three", "    four"]
    assert list(wrap(colored(line, "red"), 10))[1].startswith(f"    {STYLE_ESCAPE}[31m")


def test_a_quoted_line_that_breaks_stays_quoted() -> None:
    assert list(wrap("  │ one two three", 14)) == ["  │ one two", "  │   three"]
    assert list(wrap(f"  {colored('│', 'dim')} one two three", 14)) == [
        f"  {colored('│', 'dim')} one two",
        f"  {colored('│', 'dim')}   three",
    ]
    assert list(wrap("a table │ one", 11)) == ["a table │", "    one"]


def test_a_row_has_room_for_the_escapes_in_it() -> None:
    assert list(wrap("ab\x1b[2Jc\u202e", 10)) == ["ab\\u001b[2", "    Jc\\u20", "    2e"]


def test_a_small_page_still_says_which_key_helps_and_which_ends_it() -> None:
    keys = (("enter", "logs"), ("n", "namespaces"), ("?", "help"), ("q", "quit"))

    assert key_help(keys, 28, uncolored) == "enter logs  ? help  q quit"
    assert key_help(keys, 80, uncolored) == "enter logs  n namespaces  ? help  q quit"
