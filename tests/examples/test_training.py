"""Every example learns, can be checked by another process, and gets over what is done to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.plain_processes import PlainProcesses, Result, requested_replicas, run_bare

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "tensorflow"
STEPS = {"ps": 1500, "ps-tf1": 1500, "multiworker": 1500, "single": 4000}
LEADERS = {"ps": "chief-0", "ps-tf1": "worker-0", "multiworker": "worker-0", "single": "worker-0"}
WORKERS = {"ps": 2, "ps-tf1": 2, "multiworker": 2, "single": 1}
PATIENCE = 180.0  # for one event, on a machine that does other things too


def manifest(name: str) -> Path:
    return EXAMPLES / f"{name}.yaml"


def model_folder(folder: Path, name: str) -> Path:
    return folder / "claims" / f"digits-{name}-models"


def evaluate(folder: Path) -> Sequence[str]:
    """What another process says of the newest checkpoint."""
    command: Sequence[str | Path] = [sys.executable, EXAMPLES / "evaluate.py", folder]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return str(run.stdout).splitlines()


def after(prefix: str, lines: Sequence[str]) -> str:
    """The rest of the only line that begins so."""
    (rest,) = (line.removeprefix(prefix) for line in lines if line.startswith(prefix))
    return rest


def steps_by_worker(lines: Sequence[str]) -> Sequence[int]:
    return [int(share.rsplit(":", 1)[1]) for share in after("steps by worker: ", lines).split()]


def done_here(lines: Sequence[str]) -> int:
    """How many steps a TF1 worker did in its last life."""
    return [int(match[1]) for line in lines if (match := re.fullmatch(r"(\d+) steps done here", line))][-1]


def final(lines: Sequence[str]) -> tuple[int, float]:
    """Steps and accuracy of the last line."""
    match = re.fullmatch(r"done: steps=(\d+) loss=\d\.\d+ accuracy=(\d\.\d+)", lines[-1])
    assert match, lines[-1]
    return int(match[1]), float(match[2])


def newest_step(models: Path) -> int:
    """The step of the newest checkpoint, 0 if there is none."""
    return max((int(path.stem.rsplit("-", 1)[1]) for path in models.glob("run-1/*.index")), default=0)


def wait_for_checkpoint(job: PlainProcesses, models: Path) -> int:
    """Look after each line that the leader prints; return the step that was saved."""
    while not newest_step(models):
        job.wait_for_line(job.leader, "^step ", PATIENCE, after=job.lines(job.leader))
    return newest_step(models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    name: str
    folder: Path
    result: Result

    @property
    def leaders_log(self) -> Sequence[str]:
        return self.result.logs[LEADERS[self.name]]

    @property
    def models(self) -> Path:
        return model_folder(self.folder, self.name)


# `make test` trains all examples with the installed command, in tests/e2e; as bare processes they train in `make soak`.
@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.soak) for name in sorted(STEPS)])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    result = run_bare(manifest(name), folder, {"--steps": str(STEPS[name])})
    return Trained(name=name, folder=folder, result=result)


def test_an_example_learns_the_digits(trained: Trained) -> None:
    steps, accuracy = final(trained.leaders_log)

    assert trained.result.exit_codes[LEADERS[trained.name]] == (0,)
    assert "data: scikit-learn's digits" in trained.leaders_log
    assert STEPS[trained.name] <= steps < STEPS[trained.name] + WORKERS[trained.name]
    assert accuracy >= 0.95


def test_it_says_how_far_it_is(trained: Trained) -> None:
    pattern = rf"step (\d+) of {STEPS[trained.name]}, loss \d\.\d+, accuracy \d\.\d+"
    steps = [int(match[1]) for line in trained.leaders_log if (match := re.match(pattern, line))]

    assert steps
    assert steps == sorted(set(steps))


def test_another_process_gets_the_same_accuracy_from_the_last_checkpoint(trained: Trained) -> None:
    said = evaluate(trained.models)

    assert after("evaluated: ", said) == after("done: ", trained.leaders_log)


def test_every_worker_does_steps(trained: Trained) -> None:
    steps, _ = final(trained.leaders_log)
    logs = [trained.result.logs[f"worker-{index}"] for index in range(WORKERS[trained.name])]

    if trained.name == "ps":  # the chief hands the steps out, the workers count them
        assert min(steps_by_worker(trained.leaders_log)) > 0
        assert sum(steps_by_worker(trained.leaders_log)) == steps
    elif trained.name == "ps-tf1":  # each worker has a count of its own
        own = [done_here(log) for log in logs]
        assert min(own) > 0
        assert [*own, 0, 0] == steps_by_worker(trained.leaders_log)
        assert sum(own) == steps
    else:  # all workers do all steps, but one that says so last may be ended before
        assert all(any(re.match(r"step \d|ended with steps=|done: steps=", line) for line in log) for log in logs)


def test_it_writes_what_tensorboard_shows(trained: Trained) -> None:
    (events,) = (trained.models / "run-1").glob("events.out.tfevents.*")

    written = events.read_bytes()

    assert b"loss" in written
    assert b"accuracy" in written


def test_it_leaves_no_process(trained: Trained) -> None:
    codes = {code for codes in trained.result.exit_codes.values() for code in codes}

    assert set(trained.result.exit_codes) == set(requested_replicas(manifest(trained.name)))
    assert codes <= {0, 143}  # done, or ended by SIGTERM because it serves until it is stopped


def test_a_job_after_a_finished_one_begins_anew(tmp_path: Path) -> None:
    first = run_bare(manifest("single"), tmp_path, {"--steps": "300"})
    second = run_bare(manifest("single"), tmp_path, {"--steps": "200"})

    assert final(first.logs["worker-0"])[0] == 300
    assert final(second.logs["worker-0"])[0] == 200
    assert sorted(run.name for run in model_folder(tmp_path, "single").iterdir()) == ["run-1", "run-2"]


@pytest.mark.parametrize(("name", "steps"), [("single", 6000), pytest.param("ps", 2000, marks=pytest.mark.soak)])
def test_a_leader_that_is_told_to_end_saves_first_and_goes_on_later(name: str, steps: int, tmp_path: Path) -> None:
    with PlainProcesses(manifest(name), tmp_path, {"--steps": str(steps)}) as job:
        job.start(*requested_replicas(manifest(name)))
        job.wait_for_line(job.leader, "^step ", PATIENCE)
        job.signal(job.leader, signal.SIGTERM)
        assert job.wait(job.leader, PATIENCE) == 143
        saved = job.wait_for_line(job.leader, r"SIGTERM: saved the checkpoint of step (\d+)", PATIENCE)
        job.start(job.leader)
        resumed = job.wait_for_line(job.leader, r"continuing from step (\d+)", PATIENCE)
        assert job.wait(job.leader, PATIENCE) == 0
    log = job.result().logs[job.leader]

    assert resumed[1] == saved[1]
    assert final(log)[0] == steps
    assert final(log)[1] >= 0.95


@pytest.mark.parametrize(
    ("name", "alone", "missing"),
    [("ps", "chief-0", "ps-0"), ("ps-tf1", "worker-1", "ps-0"), ("multiworker", "worker-1", "worker-0")],
)
def test_a_replica_that_is_alone_says_whom_it_waits_for_and_still_ends_when_told(
    name: str, alone: str, missing: str, tmp_path: Path
) -> None:
    with PlainProcesses(manifest(name), tmp_path, {}) as job:
        job.start(alone)
        job.wait_for_line(alone, f"^waiting for {missing} .*: Connection refused", PATIENCE)
        job.signal(alone, signal.SIGTERM)

        assert job.wait(alone, PATIENCE) == 143


@pytest.mark.soak
def test_the_chief_goes_on_without_a_lost_worker_and_takes_it_back(tmp_path: Path) -> None:
    with PlainProcesses(manifest("ps"), tmp_path, {"--steps": "2000"}, restarts=1) as job:
        job.start(*requested_replicas(manifest("ps")))
        job.wait_for_line("chief-0", "^step ", PATIENCE)
        printed = job.lines("worker-0")
        job.signal("worker-0", signal.SIGKILL)
        share = job.wait_for_line("chief-0", r"worker-0:(\d+) .*no answer from worker-0", PATIENCE)
        job.signal("chief-0", signal.SIGSTOP)  # so that the job is not done before the worker is back
        job.wait_for_line("worker-0", "chief-0 answers", PATIENCE, after=printed)
        job.signal("chief-0", signal.SIGCONT)
        assert job.wait("chief-0", PATIENCE) == 0
    log = job.result().logs["chief-0"]

    assert final(log)[1] >= 0.95
    assert steps_by_worker(log)[0] > int(share[1])
    assert final(log)[0] - 1 <= sum(steps_by_worker(log)) <= final(log)[0]  # the step in hand was done again


@pytest.mark.soak
def test_a_chief_that_loses_the_parameter_server_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    with PlainProcesses(manifest("ps"), tmp_path, {"--steps": "2500"}, restarts=2) as job:
        job.start(*requested_replicas(manifest("ps")))
        job.wait_for_line("ps-0", "chief-0 answers", PATIENCE)
        saved = wait_for_checkpoint(job, model_folder(tmp_path, "ps"))
        job.signal("ps-0", signal.SIGKILL)
        resumed = job.wait_for_line("chief-0", r"continuing from step (\d+)", PATIENCE)
        assert job.wait("chief-0", PATIENCE) == 0
    result = job.result()

    assert int(resumed[1]) >= saved
    assert result.exit_codes["chief-0"] == (138, 0)
    assert final(result.logs["chief-0"])[1] >= 0.95
    assert sum(steps_by_worker(result.logs["chief-0"])) == 2500


@pytest.mark.soak  # tests/e2e/test_elastic.py does the same to them as replicas of a job
def test_tf1_workers_come_and_go_and_no_step_is_lost_or_counted_twice(tmp_path: Path) -> None:
    with PlainProcesses(manifest("ps-tf1"), tmp_path, {}) as job:
        job.start("ps-0", "worker-0", "worker-1")
        job.wait_for_line("worker-1", "^step ", PATIENCE)
        start_while_others_pause(job, "worker-2", ["worker-0", "worker-1"])  # one more than the job asked for
        job.wait_for_line("worker-2", "^step ", PATIENCE)
        job.signal("worker-1", signal.SIGTERM)
        assert job.wait("worker-1", PATIENCE) == 143
        job.signal("worker-2", signal.SIGKILL)
        assert job.wait("worker-2", PATIENCE) == 137
        job.wait_for_line("worker-0", "^step ", PATIENCE, after=job.lines("worker-0"))
        start_while_others_pause(job, "worker-2", ["worker-0"])
        assert job.wait("worker-0", PATIENCE) == 0
        assert job.wait("worker-2", PATIENCE) == 0
    logs = job.result().logs
    shares = steps_by_worker(logs["worker-0"])

    assert final(logs["worker-0"])[1] >= 0.95
    assert sum(shares) == final(logs["worker-0"])[0]
    assert shares[0] == done_here(logs["worker-0"])
    assert shares[1] == done_here(logs["worker-1"])
    assert shares[2] > done_here(logs["worker-2"]) > 0
    assert shares[3] == 0
    assert steps_by_worker(evaluate(model_folder(tmp_path, "ps-tf1"))) == shares


def start_while_others_pause(job: PlainProcesses, name: str, others: Sequence[str]) -> None:
    """So that the job is not done before this one has begun, however slow the machine."""
    printed = job.lines(name)
    for other in others:
        job.signal(other, signal.SIGSTOP)
    job.start(name)
    job.wait_for_line(name, "^in training ", PATIENCE, after=printed)
    for other in others:
        job.signal(other, signal.SIGCONT)


@pytest.mark.soak
def test_a_tf1_worker_0_that_was_killed_joins_the_living_model_where_it_is(tmp_path: Path) -> None:
    with PlainProcesses(manifest("ps-tf1"), tmp_path, {"--steps": "5000"}, restarts=1) as job:
        job.start("ps-0", "worker-0", "worker-1")
        job.wait_for_line("worker-0", "^step ", PATIENCE)
        printed = job.lines("worker-0")
        job.signal("worker-0", signal.SIGKILL)
        step = job.wait_for_line("worker-1", r"^step (\d+)", PATIENCE, after=job.lines("worker-1"))
        joined = job.wait_for_line("worker-0", r"in training at step (\d+)", PATIENCE, after=printed)
        assert job.wait("worker-0", PATIENCE) == 0
    log = job.result().logs["worker-0"]

    assert int(joined[1]) > int(step[1])
    assert sum(steps_by_worker(log)) == final(log)[0]


@pytest.mark.soak
def test_tf1_workers_outlive_the_parameter_server(tmp_path: Path) -> None:
    with PlainProcesses(manifest("ps-tf1"), tmp_path, {"--steps": "4000"}, restarts=1) as job:
        job.start("ps-0", "worker-0", "worker-1")
        saved = wait_for_checkpoint(job, model_folder(tmp_path, "ps-tf1"))
        printed = job.lines("worker-0")
        job.signal("ps-0", signal.SIGKILL)
        job.wait_for_line("worker-1", "^waiting for ps-0 ", PATIENCE)
        resumed = job.wait_for_line("worker-0", r"in training at step (\d+)", PATIENCE, after=printed)
        assert job.wait("worker-0", PATIENCE) == 0
    result = job.result()

    assert int(resumed[1]) >= saved
    assert result.exit_codes["worker-0"] == (0,)
    assert final(result.logs["worker-0"])[1] >= 0.95


@pytest.mark.soak  # tests/e2e/test_together.py kills one of them as a replica of a job
@pytest.mark.parametrize(("victim", "survivor"), [("worker-1", "worker-0"), ("worker-0", "worker-1")])
def test_workers_that_march_together_fall_together_and_go_on_from_the_checkpoint(
    victim: str, survivor: str, tmp_path: Path
) -> None:
    with PlainProcesses(manifest("multiworker"), tmp_path, {}, restarts=4) as job:
        job.start("worker-0", "worker-1")
        saved = wait_for_checkpoint(job, model_folder(tmp_path, "multiworker"))
        job.signal(victim, signal.SIGKILL)
        resumed = [job.wait_for_line(name, r"continuing from step (\d+)", PATIENCE) for name in (victim, survivor)]
        assert job.wait("worker-0", PATIENCE) == 0
    result = job.result()

    assert resumed[0][1] == resumed[1][1]
    assert int(resumed[0][1]) >= saved > 0
    assert int(resumed[0][1]) % 500 == 0
    assert result.exit_codes[victim][0] == 137
    assert result.exit_codes[survivor][0] != 0
    assert final(result.logs["worker-0"])[0] == 3000
    assert final(result.logs["worker-0"])[1] >= 0.95
