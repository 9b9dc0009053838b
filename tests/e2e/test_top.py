"""`tarragon top` at a real terminal, about a cluster whose replicas are real processes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli import manifests
from tests.cli.tty import Tty
from tests.e2e.user import User

pytestmark = pytest.mark.timeout(300)

TRAINING = """
import time
for step in range(10000):
    print(f"step {step} loss: {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Somebody whose job trains, and whose other job has failed."""
    folder = tmp_path_factory.mktemp("top")
    user = User(folder=folder, home=folder / "home")
    user.file("digits.yaml", manifests.worker("digits", TRAINING, replicas=2))
    user.file("broken.yaml", manifests.worker("broken", "import no_such_module"))
    submitted = user("submit", "digits.yaml")
    assert submitted.code == 0, submitted.err
    failed = user.run("broken.yaml")
    assert failed.code == 100, failed.err
    yield user
    user("down")


def top(user: User, *words: str, columns: int = 80, lines: int = 24) -> Tty:
    return Tty(user.command("top", *words), user.folder, user.environment(), columns, lines)


def test_jobs_replicas_and_nodes_are_on_one_page_and_a_key_opens_what_they_say(trainer: User) -> None:
    with top(trainer) as tty:
        counts = re.compile("2 jobs  (1 Running  1 Failed|1 Failed  1 Running)")
        page = tty.until(lambda text: "step" in text and bool(counts.search(text)))
        assert "local" in page

        tty.type("/digits\r")
        tty.until(lambda text: "broken" not in text)
        tty.type("l")
        tty.until(lambda text: "[worker-0] step" in text and "[worker-1] step" in text)
        tty.type("q")
        tty.until("LAST LINE")
        tty.type("\x1b")
        tty.until("broken")
        tty.type("/broken\rw")
        why = tty.until("pip install")
        assert "exit code 1" in why
        tty.type("qe")
        tty.until("TFJobFailed")
        tty.type("q")
        tty.until("LAST LINE")
        tty.type("q")

        assert tty.ended() == 0
        # The other page of the terminal is left, the cursor is seen again: pyte knows no other page.
        assert tty.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_a_replica_that_is_chosen_is_heard_alone(trainer: User) -> None:
    with top(trainer, lines=40) as tty:
        tty.until("step")
        tty.type("/digits\r\tj\r")
        tty.until("[worker-1] step")
        assert "[worker-0]" not in tty.text
        assert "--replica worker-1" in tty.text


def test_ctrl_z_gives_the_terminal_back_and_fg_comes_back_to_the_page(trainer: User) -> None:
    environment = {**trainer.environment(), "PS1": "prompt> ", "TERM": "xterm-256color"}
    with Tty(["bash", "--norc", "--noprofile", "-i"], trainer.folder, environment) as tty:
        tty.until("prompt>")
        tty.type(" ".join(trainer.command("top")) + "\r")
        tty.until("LAST LINE")
        tty.type("\x1a")
        # The shell's own word and prompt: a replica of the page can be "Stopped", too.
        tty.until(lambda text: bool(re.search(r"\[1\]\+ +Stopped.*prompt>$", text.rstrip(), re.DOTALL)))
        tty.type("fg\r")
        tty.until(lambda text: "quit" in text.split("\n")[-1])
        tty.resize(120, 30)
        tty.until(lambda text: len(text.split("\n")[-1]) <= 120 and "quit" in text.split("\n")[-1])
        tty.type("q")
        tty.until(lambda text: text.rstrip().endswith("prompt>"))
        tty.type("exit\r")

        assert tty.ended() == 0


def test_no_colour_and_a_page_of_forty_columns_still_tell_everything_in_words(trainer: User) -> None:
    plain = replace(trainer, variables={"NO_COLOR": "1"})
    with top(plain, columns=40, lines=12) as tty:
        tty.until(lambda text: "digits" in text or "broken" in text)
        tty.type("q")
        tty.ended()

    assert set(re.findall(rb"\x1b\[([0-9;]*)m", tty.raw)) == {b"0"}
    assert b"> " in tty.raw


def test_a_cluster_that_dies_is_told_and_one_that_comes_back_is_shown_again(trainer: User) -> None:
    with top(trainer) as tty:
        tty.until("digits")
        server = read_server(Home(trainer.home))
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        tty.until(lambda text: "! " in text and "digits" in text)

        up = trainer.start("up")
        up.until("ready")
        tty.until(lambda text: "! " not in text and "2 jobs" in text)
        tty.type("q")
        assert tty.ended() == 0
        up.signal(signal.SIGTERM)
        up.ended()


@pytest.mark.parametrize("words", [("top",), ("top", "-A")])
def test_without_a_terminal_it_says_what_to_do_instead(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = User(folder=tmp_path, home=tmp_path / "home")(*words)

    assert ended.code == 2
    assert "`list --watch`" in ended.err


def test_a_dumb_terminal_is_none_to_draw_on(tmp_path: Path) -> None:
    user = User(folder=tmp_path, home=tmp_path / "home", variables={"TERM": "dumb"})

    with top(user) as tty:
        assert tty.ended() == 2
    assert b"TERM is dumb" in tty.raw


def test_where_no_cluster_runs_it_says_how_one_is_started(tmp_path: Path) -> None:
    with top(User(folder=tmp_path, home=tmp_path / "home")) as tty:
        tty.until("is not running")  # however long the path before it is, and wherever the line breaks
        tty.type("q")
        assert tty.ended() == 0
