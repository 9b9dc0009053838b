"""The rules of the command line, by their numbers in the research on peers: those about what is shown, and where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import click
import msgspec
import pytest

from tarragon.cli.jobs.listing import sort_jobs
from tarragon.cli.jobview.queueing import job_key, queue_positions
from tarragon.cli.jobview.rows import HEADER, WIDE, fit_wide_table, fit_width, header, job_row
from tarragon.cli.options.states import complete_states
from tarragon.cli.output.style import STATES
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, JobStatus, RestartRecord
from tarragon.kube.meta import CustomObject
from tests.cli.conftest import CommandResult, Shell
from tests.cli.manifests import group, job, python, worker
from tests.cli.scenes import BEGIN, at
from tests.cli.test_rows import a_job
from tests.cli.tty import Tty

pytestmark = pytest.mark.timeout(300)

CONTEXT, OPTION = click.Context(click.Command("list")), click.Option(["--state"])
NOTHING: Mapping[str, str] = MappingProxyType({})


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Somebody with a job whose worker 1 fails as soon as a file `go` is there, and one that waits for what is not."""
    folder = tmp_path_factory.mktemp("looking")
    shell = Shell(folder=folder, home=folder / "home")
    program = python(
        "import os, sys, time; print('one line', flush=True)\n"
        "while not (os.environ['HOSTNAME'].endswith('1') and os.path.exists('go')): time.sleep(0.05)\n"
        "sys.exit(3)"
    )
    shell.file("job.yaml", job("digits", Worker=group(program, 2)))
    shell.file("big.yaml", worker("big", "pass", resources={"limits": {"nvidia.com/gpu": 64}}))
    shell("submit", "big.yaml")
    shell("wait", "big", "--for", "waiting", "--timeout", "60s")
    yield shell
    shell("down")


def terminal(shell: Shell, *words: str, variables: Mapping[str, str] = NOTHING) -> Tty:
    environment = {name: value for name, value in shell.environment().items() if name not in {"CI", "NO_COLOR"}}
    return Tty(shell.command(*words), shell.folder, {**environment, **variables})


def test_rule_11_why_tells_the_code_what_is_in_the_way_and_the_place_in_the_queue(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    small = {"TARRAGON_UP_NODE": "name=small,cpu=4,memory=1Gi", "TARRAGON_UP_POLICY": "fifo"}
    shell = Shell(folder=folder, home=tmp_path / "home", variables=small)
    for name in ("first", "second", "third"):
        whole = worker(name, "import time; time.sleep(600)", resources={"limits": {"memory": "1Gi"}})
        shell("submit", shell.file(f"{name}.yaml", whole))
        shell("wait", name, "--for", "running" if name == "first" else "waiting", "--timeout", "60s")

    result = shell("why", "third")
    shell("down")

    first, *below = result.out.splitlines()
    assert first == "third is Waiting: BehindOthers: a job ahead of it in the queue waits for resources"
    assert any(re.fullmatch(r"  in the queue for .+, at position 2 of 2", line) for line in below), result.out


@contextmanager
def go(shell: Shell) -> Iterator[None]:
    shell.file("go", "")
    try:
        yield
    finally:
        (shell.folder / "go").unlink()


def runs_and_fails(shell: Shell) -> CommandResult:
    """The job runs whole before worker 1 fails."""
    going = shell.start("run", "job.yaml")
    going.until("[worker-0] one line")
    going.until_err(lambda text: bool(re.search("^[0-9:]+Z  Running$", text, re.MULTILINE)))
    with go(shell):
        return going.ended()


def test_rule_5_results_are_on_stdout_and_progress_and_hints_on_stderr(failed: Shell) -> None:
    ended = runs_and_fails(failed)

    assert ended.code == 100
    assert {"[worker-0] one line", "[worker-1] one line"} <= set(ended.out.splitlines())
    assert re.search(r"^worker-1 failed( first)?: exit code 3: ", ended.out, re.MULTILINE)
    assert "Running" in ended.err
    assert "describe digits" in ended.err
    assert "[worker-0] one line" not in ended.err


@pytest.mark.parametrize(
    ("options", "variables", "is_colored"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"TERM": "dumb"}, False),
        (("--color", "never"), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_rule_6_colour_is_for_terminals_that_want_it(
    failed: Shell, options: tuple[str, ...], variables: Mapping[str, str], *, is_colored: bool
) -> None:
    with terminal(failed, *options, "list", variables=variables) as tty:
        assert tty.ended() == 0

    assert (b"\x1b[3" in tty.raw) is is_colored
    assert b"big" in tty.raw


def test_rule_6_a_pipe_gets_no_colour_but_where_it_is_asked_for(failed: Shell) -> None:
    assert "\x1b" not in failed("list").out
    assert "\x1b[33mWaiting\x1b[0m" in failed("--color", "always", "list").out


def test_rule_6_in_ci_each_change_is_a_line_with_its_time_and_nothing_is_drawn_over(failed: Shell) -> None:
    with terminal(failed, "run", "job.yaml", variables={"CI": "true"}) as tty:
        tty.until(lambda text: bool(re.search(r"Z  Running$", text, re.MULTILINE)))
        with go(failed):
            assert tty.ended() == 100

    text = re.sub(rb"\x1b\[[0-9;]*m", b"", tty.raw).decode()
    assert re.search(r"^\d\d:\d\d:\d\dZ  Running\r$", text, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\dZ  worker-1: Failed, exit code 3\r$", text, re.MULTILINE)
    assert "\x1b" not in text


def test_rule_7_states_have_argos_colours_and_the_word_always_stands_there() -> None:
    assert {STATES[word] for word in ("Succeeded",)} == {"green"}
    assert {STATES[word] for word in ("Failed",)} == {"red"}
    assert {STATES[word] for word in ("Running",)} == {"cyan"}
    assert {STATES[word] for word in ("Waiting", "Pending", "Starting", "Suspended")} == {"yellow"}


def test_rule_9_of_a_failure_the_first_replica_its_class_its_lines_and_all_exit_codes_are_told(failed: Shell) -> None:
    report = runs_and_fails(failed).out

    assert re.search(r"worker-1 failed( first)?: exit code 3: ", report)
    assert "│ one line" in report
    table = report[report.index("REPLICA") :].splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["worker-0", "worker-1"]
    assert table[2].split()[1:3] == ["Failed", "3"]
    assert report.index("worker-1 failed") < report.index("REPLICA")


def test_rule_23_list_shows_gpus_and_the_place_in_the_queue(failed: Shell) -> None:
    head, big, *_ = failed("list").out.splitlines()

    assert head.split() == " ".join(HEADER).split()
    assert big.split()[:6] == ["big", "Waiting", "0/1", "64", "-", "0"]  # it never fits: nobody stands behind it
    assert failed("list", "--no-headers").out.splitlines()[0].startswith("big")
    assert failed("list", "--field-selector", "metadata.name=nosuch").err.startswith("No jobs")
    assert failed("list", "--sort-by", "nosuch").code == 2


def test_a_list_has_the_jobs_of_some_states_only(failed: Shell) -> None:
    assert failed("list", "--state", "Waiting,running", "-o", "name").out == "tfjob/big\n"
    assert '"name": "big"' in failed("list", "--state", "waiting", "-o", "json").out
    assert json.loads(failed("list", "--state", "restarting", "-o", "json").out)["items"] == []
    nothing = failed("list", "--state", "Suspended", "--state", "created")
    assert nothing.out == ""
    assert nothing.err == "No jobs that are created or suspended in namespace default; -A shows all\n"
    wrong = failed("list", "--state", "done")
    assert wrong.code == 2
    assert "'done' is no state; the states are created, waiting" in wrong.err


def test_the_states_of_a_list_are_completed_behind_a_comma_too() -> None:
    def offered(text: str) -> list[str]:
        return complete_states(CONTEXT, OPTION, text)

    assert offered("R") == ["running", "restarting"]
    assert offered("Running,r") == ["Running,restarting"]


def test_rule_23_a_watched_list_is_drawn_anew_on_a_terminal(failed: Shell) -> None:
    with terminal(failed, "list", "--watch", "--sort-by", "name") as tty:
        tty.until("Waiting")
        failed("submit", failed.file("one.yaml", worker("one-more", "pass")))
        tty.until(lambda text: "one-more" in text and "Succeeded" in text)
        assert tty.text.count("big ") == 1
        tty.type("\x03")
        assert tty.ended() in {0, 130}


def queued(seconds: float) -> JobStatus:
    return JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=at(seconds)))


def test_rule_23_places_are_counted_from_the_first_that_will_be_served() -> None:
    late, early, going = (
        replace(a_job(status), object=_named(name))
        for name, status in (
            ("late", queued(9)),
            ("early", queued(3)),
            ("going", JobStatus(phase=Phase.RUNNING, admission=Admission(queued_at=BEGIN, admitted_at=BEGIN))),
        )
    )

    assert queue_positions([late, going, early]) == {job_key(early): 1, job_key(late): 2}
    assert sort_jobs([late, going, early], "queue", queue_positions([late, early])) == [early, late, going]


def test_rule_23_rows_are_sorted_by_what_somebody_looks_for() -> None:
    records = {Replica(WORKER, 0): RestartRecord(pod_restarts=3)}
    calm, busy = (
        replace(a_job(JobStatus(phase=Phase.RUNNING, restarts=restarts)), object=_named(name))
        for name, restarts in (("calm", {}), ("busy", records))
    )

    assert sort_jobs([calm, busy], "restarts", {}) == [busy, calm]
    assert sort_jobs([calm, busy], "name", {}) == [busy, calm]


def test_rule_23_a_small_terminal_does_without_what_says_nothing() -> None:
    facts = {"is_wide": False, "names_namespace": False}
    running = a_job(JobStatus(phase=Phase.RUNNING))
    rows = [header(**facts), job_row(running, at(5), **facts), [*job_row(running, at(5), **facts)[:-1], "x" * 60]]

    assert fit_width(rows, 200) == rows
    assert fit_width(rows, 85)[0] == ("NAME", "STATE", "READY", "AGE", "PROGRESS OR REASON")


def test_rule_23_a_small_terminal_shows_the_progress_rather_than_the_age() -> None:
    said = "step 4/60 (6 %) · loss 0.2134 · 12s left"
    cells = ("digits-of-a-person", "Running", "2/2", "1", "-", "1", "12s", "3m", said)

    shown = fit_width([HEADER, cells, ("b", "Waiting", "0/1", "-", "1", "0", "-", "3m", "Insufficient")], 80)
    wide = fit_wide_table([WIDE, (*cells[:-1], "TFJob", "worker 2", "local", said)], 80)

    assert shown[0] == ("NAME", "STATE", "GPUS", "QUEUE", "PROGRESS OR REASON")
    assert sum(max(map(len, column)) + 3 for column in zip(*shown, strict=True)) - 3 <= 80 + len(said) - 36
    assert {"READY", "RESTARTS", "DURATION", "AGE", "NODES"} <= {*wide[0]}


def test_rule_23_a_small_terminal_shows_the_exception_rather_than_its_exit_code() -> None:
    said = "worker-0: exit code 1: ValueError: shape mismatch in layer dense_4"
    rows = [HEADER, ("digits", "Failed", "0/1", "-", "-", "0", "12s", "3m", said)]

    assert fit_width(rows, 80)[1][-1] == "worker-0: ValueError: shape mismatch in layer dense_4"
    assert fit_wide_table([HEADER, rows[1]], 80)[1][-1] == "worker-0: ValueError: shape mismatch in layer dense_4"
    assert fit_width(rows, 140)[1][-1] == said


def test_rule_23_long_names_keep_their_ends_where_there_is_no_room_for_all() -> None:
    names = [f"a-family-of-trainings-with-a-long-name-{number}" for number in (17, 18)]
    rows = [("NAME", "STATE", "REASON"), *((name, "Waiting", "because " * 9) for name in names)]

    shown = [cells[0] for cells in fit_width(rows, 60)[1:]]

    assert all(len(name) < len(names[0]) for name in shown)
    assert [name[-3:] for name in shown] == ["-17", "-18"]


def _named(name: str) -> CustomObject:
    found = a_job(JobStatus()).object
    metadata = msgspec.structs.replace(found.metadata, name=name)
    return msgspec.structs.replace(found, metadata=metadata)
