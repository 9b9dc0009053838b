from __future__ import annotations

import pytest

from tarragon.job.lost_peer import has_lost_peer


@pytest.mark.parametrize(
    "line",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all addresses",
        "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register",
        "RuntimeError: INTERNAL: Gloo all-reduce failed: Read timeout",
        "/job:worker/replica:0/task:1 unexpectedly tried to connect with a different one",
        "The tasks have crashed: Heartbeat timeout of task 1",
    ],
)
def test_who_lost_a_connection_is_not_to_blame(line: str) -> None:
    assert has_lost_peer(f"step 17\n{line}")


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'heartbeat'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/heartbeats.csv'",
        "ValueError: unknown state UNAVAILABLE",
        "ValueError: bad shard 17",
        "",
    ],
)
def test_words_of_connections_in_an_error_of_its_own_are_no_lost_connection(line: str) -> None:
    assert not has_lost_peer(line)


def test_only_the_telling_line_counts() -> None:
    assert not has_lost_peer("retrying: connection refused\nValueError: bad shard 17")
