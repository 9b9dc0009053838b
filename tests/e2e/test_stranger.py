"""Somebody who knows nothing of Tarragon finds out why a job failed: what they read first, command by command."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.manifests import command, group, job, python, worker
from tests.cli.tty import Tty
from tests.e2e.user import User, eventually

pytestmark = pytest.mark.timeout(300)

RAISES = (
    "import os, time\n"
    "print('started', flush=True)\n"
    "if os.environ['HOSTNAME'].endswith('1'): raise ValueError('labels have shape (3,)')\n"
    "time.sleep(60)"
)
KILLED = "import os, signal; print('step 1', flush=True); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    folder = tmp_path_factory.mktemp("stranger")
    user = User(folder=folder, home=folder / "home")
    yield user
    user("down")


def row(user: User, name: str) -> str:
    return next((line for line in user("list").out.splitlines() if line.split()[:1] == [name]), "")


def test_an_exception_in_one_worker_names_that_worker_and_the_exception(stranger: User) -> None:
    failed = stranger.run(stranger.file("raises.json", worker("raises", RAISES, replicas=3)))

    assert failed.code == 100
    first, _, *rest = failed.out[failed.out.index("Failed") :].splitlines()
    assert first.startswith("Failed  raises after")
    assert rest[0].startswith("worker-1 failed: exit code 1: an error in the program")
    assert "  │ ValueError: labels have shape (3,)" in rest
    assert "worker-1: exit code 1" in row(stranger, "raises")
    assert "ValueError: labels have shape (3,)" in stranger("why", "raises").out.splitlines()[0]


def test_a_worker_that_is_killed_is_said_to_have_run_out_of_memory_perhaps(stranger: User) -> None:
    never = {**group(python(KILLED)), "restartPolicy": "Never"}
    failed = stranger.run(stranger.file("killed.json", job("killed", Worker=never)))

    assert failed.code == 100
    assert re.search(r"^worker-0 failed: killed \(SIGKILL, 137\): .*out of memory", failed.out, re.MULTILINE)
    assert "out of memory" in stranger("why", "killed").out


def test_a_command_that_is_misspelt_is_named(stranger: User) -> None:
    failed = stranger.run(stranger.file("nocmd.json", job("nocmd", Worker=group(command("pyhton", "train.py")))))

    assert failed.code == 100
    assert "Probably: command pyhton not found" in failed.out
    assert "command pyhton not found" in stranger("why", "nocmd").out


def test_a_field_that_is_misspelt_never_becomes_a_job(stranger: User) -> None:
    typo = worker("typo", "pass").replace('"replicas"', '"replcas"')
    failed = stranger.run(stranger.file("typo.json", typo))

    assert failed.code == 2
    assert "spec.tfReplicaSpecs.Worker.replcas: unknown field; did you mean replicas?" in failed.err
    assert row(stranger, "typo") == ""


def test_a_job_that_can_never_fit_says_so_at_once_and_that_waiting_does_not_help(stranger: User) -> None:
    huge = stranger.file("huge.json", worker("huge", "pass", resources={"limits": {"nvidia.com/gpu": 64}}))
    failed = stranger.run(huge)
    stranger("submit", huge)
    waited = stranger("wait", "huge")

    assert (failed.code, waited.code) == (105, 105)
    assert "tfjob/huge can never start here" in failed.err
    assert "waiting does not help" in stranger("why", "huge").out


def test_a_parameter_server_that_fails_again_and_again_is_told_while_the_job_runs(stranger: User) -> None:
    loop = {**group(python("import sys; sys.exit('port 2222 is taken')")), "restartPolicy": "OnFailure"}
    waits = group(python("import time; time.sleep(60)"))
    stranger("submit", stranger.file("loop.json", job("loop", PS=loop, Worker=waits)))

    listed = eventually(lambda: found if "CrashLoopBackOff" in (found := row(stranger, "loop")) else "")

    assert "ps-0: exit code 1" in listed
    assert "port 2222 is taken" in stranger("why", "loop").out.splitlines()[0]
    assert "[ps-0] port 2222 is taken" in stranger("logs", "loop").out


def test_the_page_of_all_jobs_shows_each_failure_and_a_key_says_why(stranger: User) -> None:
    stranger.run(stranger.file("broken.json", worker("broken", "import no_such_module")))

    with Tty(stranger.command("top"), stranger.folder, stranger.environment()) as tty:
        tty.until("broken")
        tty.type("/broken\rw")
        tty.until(lambda text: "No module named 'no_such_module'" in text and "pip install" in text)
