"""The progress that programs print, read from the logs of their pods, by an operator on the embedded API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import DEFAULT_LOG, Client, LogOptions
from tarragon.job.progress import Progress, progress_patch
from tarragon.kube.meta import Key
from tarragon.operator.log_reading.log_reader import CLUSTER_LOG_READING, EMBEDDED_LOG_READING, TAIL_LINES
from tarragon.operator.log_reading.log_window import LogCursor, new_lines
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tests.operator.stage import TFJOBS, Stage, group

QUICK = replace(EMBEDDED_LOG_READING, seconds_between=0.05, reads_per_minute=6000)
MOMENT = "2026-11-24T10:00:00.{:09}Z "


def stamped(*lines: str, first: int = 0) -> bytes:
    return "".join(MOMENT.format(first + index) + line + "\n" for index, line in enumerate(lines)).encode()


# --------------------------------------------------------------------------------------------------------- the window


def test_a_tail_that_is_read_again_has_no_new_lines() -> None:
    text = stamped("a", "b")
    first = new_lines(text, LogCursor())
    again = new_lines(text, first.cursor)

    assert list(first.lines) == ["a", "b"]
    assert list(again.lines) == []
    assert again.cursor == first.cursor


def test_lines_of_one_moment_are_counted() -> None:
    twice = (MOMENT.format(1) + "a\n").encode() * 2
    first = new_lines(twice, LogCursor())
    more = new_lines(twice * 2 + stamped("b", first=2), first.cursor)

    assert (len(first.lines), list(more.lines)) == (2, ["a", "a", "b"])


def test_a_line_that_is_being_written_is_new_until_it_ends() -> None:
    text = stamped("a") + (MOMENT.format(1) + "1/10").encode()
    first = new_lines(text, LogCursor())
    second = new_lines(text + b"\r2/10", first.cursor)
    ended = new_lines(text + b"\r2/10\n", second.cursor)

    assert [first.unfinished, second.unfinished, ended.unfinished] == ["1/10", "1/10\r2/10", ""]
    assert [list(each.lines) for each in (first, second, ended)] == [["a"], [], ["1/10\r2/10"]]


def test_times_with_fewer_digits_are_in_order() -> None:
    first = new_lines(b"2026-11-24T10:00:00.5Z a\n", LogCursor())
    later = new_lines(b"2026-11-24T10:00:00.5Z a\n2026-11-24T10:00:00.51Z b\n", first.cursor)

    assert list(later.lines) == ["b"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20), max_size=20), st.data())
def test_whatever_part_is_read_when_each_line_is_new_once(lines: list[str], data: st.DataObject) -> None:
    text, cursor = stamped(*lines), LogCursor()
    found: list[str] = []
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    for end in [*ends, len(text)]:
        new = new_lines(text[:end], cursor)
        cursor = new.cursor
        found += new.lines

    assert found == lines


@given(st.binary(max_size=200))
def test_any_bytes_are_read(text: bytes) -> None:
    new_lines(text, new_lines(text, LogCursor()).cursor)


# --------------------------------------------------------------------------------------------------------- the reader


class Printing(DelegatingClient):
    """The stage's API with the logs that its pods would have."""

    def __init__(self, cluster: Client, logs: dict[str, bytes]) -> None:
        super().__init__(cluster)
        self.logs = logs
        self.requests: list[tuple[str, LogOptions]] = []
        self.asked = asyncio.Event()
        """A request is no change of the world that `until` would notice."""
        self.is_forbidden = False

    async def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        self.requests.append((key.name, options))
        self.asked.set()
        if self.is_forbidden:
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"})
        yield self.logs.get(key.name, b"")


async def reading(stage: Stage, logs: dict[str, bytes], options: Any = QUICK) -> Printing:
    await stage.node("n")
    client = Printing(stage.world.client, logs)
    stage.start(Operator(client, stage.world.clock, OperatorOptions(seed=1, log_reading=options)).run())
    return client


async def runs(stage: Stage, name: str = "a", **spec: Any) -> None:
    await stage.submit(name, **{"PS": group(1), "Worker": group(1), **spec})
    for pod in (f"{name}-ps-0", f"{name}-worker-0"):
        await stage.world.until(lambda pod=pod: pod in stage.pods())  # type: ignore[misc]
        await stage.plays(pod, "Running")
    await stage.until_state(name, "Running")


def progress(stage: Stage, name: str = "a") -> Any:
    return stage.job(name).get("status", {}).get("tarragon", {}).get("progress", {})


async def test_the_progress_that_the_leading_replica_prints_is_in_the_status(stage: Stage) -> None:
    client = await reading(stage, {"a-worker-0": stamped("step 12 of 100, loss 0.5"), "a-ps-0": stamped("step 9 of 9")})
    await runs(stage)
    await stage.world.until(lambda: progress(stage).get("done") == 12)
    client.logs["a-worker-0"] += stamped("step 13 of 100, loss 0.4", first=1)
    await stage.world.until(lambda: progress(stage).get("done") == 13)

    assert progress(stage)["source"] == "log"
    assert stage.job("a")["status"]["trainerStatus"]["progressPercentage"] == 13
    assert {pod for pod, _ in client.requests} == {"a-worker-0"}
    assert all(options.tail_lines == TAIL_LINES and not options.follow for _, options in client.requests)


async def test_epochs_that_are_no_longer_in_the_tail_are_remembered(stage: Stage) -> None:
    client = await reading(stage, {"a-worker-0": stamped("Epoch 2/4", "5/10 ━━━━ 2s 2ms/step - loss: 0.07")})
    await runs(stage)
    await stage.world.until(lambda: progress(stage).get("done") == 15)
    client.logs["a-worker-0"] = stamped("8/10 ━━━━ 1s 2ms/step - loss: 0.06", first=9)
    await stage.world.until(lambda: progress(stage).get("done") == 18)

    assert progress(stage)["total"] == 40


async def test_what_is_printed_yields_to_what_is_reported(stage: Stage) -> None:
    client = await reading(stage, {"b-worker-0": stamped("step 1 of 2")}, None)
    await runs(stage)
    pod = stage.pods()["a-worker-0"]["metadata"]["uid"]
    reported = Progress(updated_at=stage.world.clock.now(), done=5, total=10, pod_uid=pod)
    await stage.world.client.patch(TFJOBS, Key("default", "a"), progress_patch(reported), subresource="status")
    await stage.world.until(lambda: progress(stage).get("done") == 5)
    client.logs["a-worker-0"] = stamped("step 1 of 100")
    stage.start(Operator(client, stage.world.clock, OperatorOptions(seed=2, log_reading=QUICK)).run())
    await runs(stage, "b")
    await stage.world.until(lambda: progress(stage, "b").get("done") == 1)

    assert progress(stage)["done"] == 5
    assert "a-worker-0" not in {pod for pod, _ in client.requests}


async def test_on_clusters_only_elastic_jobs_are_read(stage: Stage) -> None:
    logs = {f"{name}-worker-0": stamped("step 1 of 2") for name in ("rigid", "elastic")}
    client = await reading(stage, logs, replace(QUICK, is_for_elastic_jobs_only=True))
    await runs(stage, "rigid")
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 2}
    await runs(stage, "elastic", **bounds)
    await stage.world.until(lambda: progress(stage, "elastic").get("done") == 1)

    assert {pod for pod, _ in client.requests} == {"elastic-worker-0"}


async def test_what_a_job_printed_at_its_end_is_read(stage: Stage) -> None:
    client = await reading(stage, {"a-worker-0": stamped("step 1 of 3")}, replace(QUICK, seconds_between=3600.0))
    await runs(stage)
    await stage.world.until(lambda: progress(stage).get("done") == 1)
    client.logs["a-worker-0"] += stamped("step 3 of 3", first=1)
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: progress(stage).get("done") == 3)

    assert stage.state("a") == "Succeeded"


async def test_an_operator_that_may_not_read_logs_goes_on_and_does_not_ask_again(stage: Stage) -> None:
    client = await reading(stage, {})
    client.is_forbidden = True
    await runs(stage)
    async with asyncio.timeout(60):
        await client.asked.wait()
    await runs(stage, "b")
    await stage.plays("b-worker-0", "Succeeded", 0)
    await stage.until_state("b", "Succeeded")

    assert len(client.requests) == 1


def test_a_cluster_gets_at_most_one_request_a_second() -> None:
    assert CLUSTER_LOG_READING.reads_per_minute <= 60
    assert CLUSTER_LOG_READING.seconds_between >= 60


@pytest.mark.parametrize("text", [b"\xff\xfe\n", b"x" * 10_000, json.dumps({"a": 1}).encode()])
def test_a_log_that_is_no_text_has_no_lines(text: bytes) -> None:
    assert not new_lines(text, LogCursor()).lines
