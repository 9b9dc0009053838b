from __future__ import annotations

import asyncio
import datetime as dt
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.clock import FakeClock
from tarragon.client.errors import BadRequest
from tarragon.client.port import LogOptions
from tarragon.localcluster.kubelet.base.files import write_json
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod import logs, stored_logs
from tarragon.localcluster.kubelet.pod.logs import LogSelection, follow, log_tail, read, rotated_log
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.pod.stored_logs import PodFacts, RunFacts, find_logs
from tarragon.localcluster.kubelet.shim import cri_log
from tests.localcluster.kubelet.builders import container_json, pod_json

NOW = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)


def cri(text: str, *, second: int = 0, tag: str = "F") -> bytes:
    return f"2026-11-21T10:00:{second:02}.000000000Z stdout {tag} {text}\n".encode()


def read_log(log: Path, **wanted: Any) -> bytes:
    return b"".join(read(log, LogSelection(**wanted)))


def whole(log: Path, **wanted: Any) -> str:
    return read_log(log, **wanted).decode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


def test_a_log_is_the_output_of_the_program(log: Path) -> None:
    log.write_bytes(cri("one") + cri("tw", tag="P") + cri("o") + cri("") + cri("end", tag="P"))

    assert whole(log) == "one\ntwo\n\nend"


def test_a_missing_log_is_empty(log: Path) -> None:
    assert whole(log) == ""


def test_timestamps_precede_lines_not_parts_of_lines(log: Path) -> None:
    log.write_bytes(cri("tw", second=1, tag="P") + cri("o", second=2) + cri("three", second=3))

    assert whole(log, timestamps=True) == ("2026-11-21T10:00:01.000000000Z two\n2026-11-21T10:00:03.000000000Z three\n")


def test_the_tail_counts_lines_as_the_program_wrote_them(log: Path) -> None:
    log.write_bytes(cri("one") + cri("tw", tag="P") + cri("o") + cri("three"))

    assert whole(log, tail=2) == "two\nthree\n"
    assert whole(log, tail=9) == "one\ntwo\nthree\n"
    assert whole(log, tail=0) == ""


def test_only_lines_after_a_time_are_shown(log: Path) -> None:
    log.write_bytes(b"".join(cri(str(second), second=second) for second in range(5)))

    assert whole(log, since=NOW + dt.timedelta(seconds=3)) == "3\n4\n"


def test_a_rotated_log_is_read_from_its_older_file(log: Path) -> None:
    logs.rotated_log(log).write_bytes(cri("one") + cri("two"))
    log.write_bytes(cri("three") + cri("four"))

    assert whole(log) == "one\ntwo\nthree\nfour\n"
    assert whole(log, tail=3) == "two\nthree\nfour\n"
    assert whole(log, tail=2) == "three\nfour\n"
    assert whole(log, tail=1) == "four\n"


TEXTS = st.lists(st.text(alphabet="ab é\t", max_size=60), max_size=40)


@given(TEXTS, st.integers(200, 2000), st.integers(0, 45), st.integers(50, 400))
def test_any_output_is_read_back_and_its_tail_is_its_last_lines(
    texts: list[str], limit: int, tail: int, chunk: int
) -> None:
    """The log is written by the shim's code with a small limit, and read in small chunks."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_CHUNK", chunk)
        patch.setattr(cri_log, "MAX_LINE_BYTES", 7)
        log = Path(folder, "0.log")
        source, sink = os.pipe()
        stream = cri_log.CriStream(source, b"stdout", cri_log.LogWriter(str(log), limit))
        for text in texts:
            os.write(sink, text.encode() + b"\n")
            stream.read()
        os.close(sink)
        stream.close()
        if stream.log.descriptor >= 0:
            os.close(stream.log.descriptor)

        # In bytes: a log may rotate between two parts of a line, which may be split within a character.
        kept = read_log(log)

        output = "".join(text + "\n" for text in texts).encode()
        assert output.endswith(kept)
        assert read_log(log, tail=tail) == b"".join(kept.splitlines(keepends=True)[-tail:] if tail else [])


@pytest.mark.parametrize("tail", range(6))
def test_a_line_in_which_the_log_was_rotated_is_one_line_of_its_tail(log: Path, tail: int) -> None:
    rotated_log(log).write_bytes(cri("one") + cri("two") + cri("thr", tag="P"))
    log.write_bytes(cri("ee") + cri("four"))

    lines = ["one\n", "two\n", "three\n", "four\n"]
    assert whole(log, tail=tail) == "".join(lines[-tail:] if tail else [])


def test_a_termination_message_from_the_log_is_limited(log: Path) -> None:
    log.write_bytes(b"".join(cri(f"line {number}") for number in range(200)))

    assert log_tail(log).splitlines() == [f"line {number}" for number in range(120, 200)]
    log.write_bytes(cri("x" * 9000))
    assert log_tail(log) == "x" * 2047 + "\n"


def test_a_termination_message_has_the_rotated_log_too(log: Path) -> None:
    rotated_log(log).write_bytes(cri("one") + cri("two"))
    log.write_bytes(cri("three"))

    assert log_tail(log) == "one\ntwo\nthree\n"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["1", "1 2 ", "Zm9v0"])
def test_a_termination_message_is_there_at_once_after_a_flood_of_long_lines(log: Path, part: str) -> None:
    line = part * (16_000 // len(part))
    rotated_log(log).write_bytes(cri(line) * 640)
    log.write_bytes(cri(line) * 600 + cri("ValueError: 5"))

    message = ""
    for _ in range(20):
        message = log_tail(log)

    assert message.endswith("\nValueError: 5\n")
    assert len(message.encode()) <= 2048


def put(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def turn(log: Path) -> None:
    log.rename(logs.rotated_log(log))


class Follower:
    """A reader that follows a log while it is written."""

    def __init__(self, log: Path, **wanted: Any) -> None:
        self.clock = FakeClock()
        self.ended = False
        self.text = ""
        self._chunks = follow(log, LogSelection(**wanted), lambda: self.ended, self.clock)
        self.task = asyncio.create_task(self._read(self._chunks))

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self.text += chunk.decode()

    async def look(self) -> str:
        """The output after one more read."""
        await self.clock.sleep(0)
        self.clock.advance(logs.POLL_SECONDS)
        for _ in range(5):
            await self.clock.sleep(0)
        return self.text


async def test_a_log_is_followed_until_its_run_has_ended(log: Path) -> None:
    put(log, cri("one"))
    follower = Follower(log)
    assert await follower.look() == "one\n"

    put(log, cri("two") + b"2026-11-21T10:00:00.000000000Z std")
    assert await follower.look() == "one\ntwo\n"
    put(log, b"out F three\n")
    follower.ended = True
    assert await follower.look() == "one\ntwo\nthree\n"

    await follower.task


async def test_a_log_may_be_followed_before_it_exists(log: Path) -> None:
    follower = Follower(log)
    assert await follower.look() == ""

    put(log, cri("one"))

    assert await follower.look() == "one\n"
    follower.task.cancel()


async def test_no_line_of_a_followed_log_is_lost_by_rotation(log: Path) -> None:
    put(log, cri("one"))
    follower = Follower(log)
    await follower.look()

    put(log, cri("two"))
    turn(log)
    put(log, cri("three"))

    assert await follower.look() == "one\ntwo\nthree\n"
    follower.task.cancel()


async def test_a_log_that_rotates_twice_between_two_reads_is_read_completely(log: Path) -> None:
    put(log, cri("one"))
    follower = Follower(log)
    await follower.look()

    for text in ("two", "three"):
        turn(log)
        put(log, cri(text))

    assert await follower.look() == "one\ntwo\nthree\n"
    follower.task.cancel()


async def test_a_half_line_truncated_on_a_full_disk_is_not_shown(log: Path) -> None:
    put(log, cri("one") + b"2026-11-21T10:00:00.000000000Z stdout F lo")
    follower = Follower(log)
    await follower.look()

    os.truncate(log, len(cri("one")))
    await follower.look()
    put(log, cri("two"))

    assert await follower.look() == "one\ntwo\n"
    follower.task.cancel()


# Requests of kubectl logs


class Node:
    """The folder of a node with the logs of one pod."""

    def __init__(self, folder: Path) -> None:
        self.folder = NodeFolder(folder / "node/n")
        self.folder.prepare()
        self.logs = NodeLogs(self.folder, FakeClock(NOW))

    def wrote(self, container: str, number: int, *lines: bytes) -> None:
        log = self.folder.pod_logs("default", "p", "u").log(container, number)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"".join(lines))

    async def read(self, *statuses: dict[str, Any], **options: Any) -> str:
        names = options.pop("containers", ("main",))
        body = pod_json("p", *(container_json(name=name) for name in names), metadata={"uid": "u"})
        body["status"] = {"containerStatuses": list(statuses)}
        return b"".join([chunk async for chunk in self.logs.read(body, LogOptions(**options))]).decode()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_the_log_of_a_single_container_needs_no_container_name(node: Node) -> None:
    node.wrote("main", 0, cri("hello"))

    assert await node.read() == "hello\n"


async def test_the_latest_run_is_shown_or_the_previous_one_on_request(node: Node) -> None:
    node.wrote("main", 9, cri("nine"))
    node.wrote("main", 10, cri("ten"))

    assert await node.read() == "ten\n"
    assert await node.read(previous=True) == "nine\n"


async def test_the_previous_run_of_a_container_in_back_off_is_its_latest(node: Node) -> None:
    node.wrote("main", 0, cri("crash"))
    waiting = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}

    assert await node.read(waiting) == await node.read(waiting, previous=True) == "crash\n"


async def test_log_options_are_applied(node: Node) -> None:
    node.wrote("main", 0, *(cri(str(second), second=second) for second in range(3)))

    assert await node.read(tail_lines=1, timestamps=True) == "2026-11-21T10:00:02.000000000Z 2\n"
    node.logs = NodeLogs(node.folder, FakeClock(NOW + dt.timedelta(seconds=3)))
    assert await node.read(since_seconds=2) == "1\n2\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"containers": ("a", "b")}, "a container name must be specified for pod p, choose one of: [a b]"),
        ({"container": "x"}, "container x is not valid for pod p"),
        ({}, 'container "main" in pod "p" is waiting to start: ImagePullBackOff'),
        ({"previous": True}, 'previous terminated container "main" in pod "p" not found'),
    ],
)
async def test_a_request_for_a_missing_log_fails_with_the_message_of_a_kubelet(
    node: Node, options: dict[str, Any], words: str
) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}

    with pytest.raises(BadRequest) as refusal:
        await node.read(waiting, **options)

    assert str(refusal.value) == words


async def test_a_followed_log_ends_with_its_run(node: Node) -> None:
    node.wrote("main", 0, cri("hello"))
    run = node.folder.pod("u").run("main", 0)
    run.mkdir(parents=True)
    write_json(run / "state.json", {"phase": "exited"})

    assert await node.read(follow=True) == "hello\n"


# Stored logs


def keep(node: Node, name: str, **facts: Any) -> None:
    folder = node.folder.pod_logs("default", name, f"uid-{name}")
    log = folder.log("main", 0)
    log.parent.mkdir(parents=True)
    log.write_bytes(cri(f"I was {name}"))
    runs = [RunFacts(container="main", number=0, code=3)]
    write_json(folder.pod_facts, PodFacts(namespace="default", name=name, uid=f"uid-{name}", runs=runs, **facts))


def names(nodes: Path, **wanted: Any) -> list[str]:
    return [pod.facts.name for pod in find_logs(nodes, **wanted)]


def test_logs_of_deleted_pods_are_found_by_namespace_and_label(node: Node) -> None:
    keep(node, "b", created=2.0, removed=9.0, labels={"job": "x"})
    keep(node, "a", created=3.0, removed=9.0, labels={"job": "x"})
    keep(node, "c", created=1.0, labels={"job": "y"})
    nodes = node.folder.home_nodes

    assert names(nodes) == ["c", "b", "a"]
    assert names(nodes, namespace="default", labels="job=x") == ["b", "a"]
    assert names(nodes, namespace="other") == []
    (pod,) = find_logs(nodes, labels="job=y")
    assert (pod.facts.runs[0].code, whole(pod.log(pod.facts.runs[0]))) == (3, "I was c\n")


def remaining(node: Node) -> set[str]:
    return {path.name for path in (node.folder.logs / "default").iterdir()} if node.folder.logs.exists() else set()


def test_logs_of_the_oldest_deleted_pods_are_pruned_and_those_of_live_pods_stay(node: Node) -> None:
    for number in range(4):
        keep(node, str(number), removed=float(10 - number))
    keep(node, "alive")
    node.folder.pod("uid-alive").path.mkdir(parents=True)

    stored_logs.prune(node.folder, pods=2)

    assert remaining(node) == {"0", "1", "alive"}


def test_logs_of_a_pod_whose_removal_could_not_be_written_are_pruned_too(node: Node) -> None:
    keep(node, "gone")

    stored_logs.prune(node.folder, pods=0)

    assert names(node.folder.home_nodes) == []


def test_stored_logs_are_limited_in_size(node: Node) -> None:
    for number in range(4):
        keep(node, str(number), removed=float(10 - number))
    pods = [node.folder.logs / "default" / str(number) for number in range(4)]
    two = sum(path.stat().st_size for pod in pods[:2] for path in pod.rglob("*") if path.is_file())

    stored_logs.prune(node.folder, size=two)

    assert remaining(node) == {"0", "1"}
