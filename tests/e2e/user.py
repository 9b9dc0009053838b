"""Somebody who has installed Tarragon and types its command; whatever they start is known by their home."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from tarragon.localcluster.kubelet.shim.shim import MARK_VARIABLE
from tests.cli.conftest import CommandResult, Shell

T = TypeVar("T")

PROGRAM = Path(sys.executable).parent / "tarragon"
EXAMPLES = Path(__file__).parents[2] / "examples" / "tensorflow"
PATIENCE = 120.0
"""Seconds for one event. The machine may have other things to do, and TensorFlow alone takes ten to be imported."""


class User(Shell):
    """As the `Shell` of tests/cli, but with the installed command."""

    def command(self, *words: str) -> Sequence[str]:
        return [str(PROGRAM), *words]

    def run(self, *words: str) -> CommandResult:
        """To its end, however long that takes: the limit of the test is the only one."""
        return self.start("run", *words).ended()

    def processes(self) -> dict[int, str]:
        """All that belong to the home, with their commands: server, shims, containers, and what those have started."""
        identities = [path.read_text().strip() for path in self.home.glob("node/*/identity")]
        traces = [os.fsencode(self.home), *(f"{MARK_VARIABLE}={identity}".encode() for identity in identities)]
        return {
            pid: command.replace(b"\0", b" ").decode(errors="replace")[:200]
            for pid, environment, command in _processes()
            if pid != os.getpid() and any(trace in environment or trace in command for trace in traces)
        }


def _processes() -> Iterator[tuple[int, bytes, bytes]]:
    """Those that are not dead: the environment of a zombie is empty."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue


def eventually(probe: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """The first result that is true."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        if time.monotonic() > deadline:
            pytest.fail(f"has not come true within {seconds} s; the last was {result!r}")
        time.sleep(0.02)  # noqa: TID251 - another process tells nobody here when it has got somewhere
    return result


def has_file(home: Path, pattern: str) -> bool:
    """Whether there is such a file anywhere, although others are replaced while one looks."""
    with suppress(FileNotFoundError):
        return any(home.rglob(pattern))
    return False


def ends_all(user: User) -> None:
    """`down`, and then nothing runs any more that the user has started."""
    if not user.home.exists():
        return
    down = user("down")
    assert down.code == 0, down.err
    left: dict[int, str] = {}

    def all_gone() -> bool:
        left.clear()
        left.update(user.processes())
        return not left

    try:
        eventually(all_gone, 60)
    except pytest.fail.Exception:
        pytest.fail(f"left over after `tarragon down`: {left}")
