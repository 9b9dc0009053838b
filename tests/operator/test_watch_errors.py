from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tarragon.base.clock import FakeClock
from tarragon.client.backoff import INITIAL_DELAY
from tarragon.client.errors import error_from_status
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery, LostWatch
from tarragon.operator.informers.watch_errors import REPEAT_SECONDS, WatchErrorLog

FORBIDDEN = error_from_status({"code": 403, "reason": "Forbidden", "message": "nodes is forbidden"})
BUSY = error_from_status({"code": 503, "reason": "ServiceUnavailable", "message": "busy"})


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self._troubles = WatchErrorLog(self.clock)

    def tells(self, error: Exception, *, pause: float, resource: str = "nodes") -> bool:
        """Whether a reader of the log at its usual level hears of it."""
        with capture_logs() as logs:
            self._troubles.log_error(CacheError(resource=resource, error=error, retry_after=pause))
        return any(line["log_level"] == "warning" for line in logs)

    def ends(self, *, resource: str = "nodes") -> list[str]:
        """What a reader of the log hears of its end."""
        with capture_logs() as logs:
            self._troubles.log_recovery(CacheRecovery(resource, 12.3))
        return [line["over"] for line in logs if line["log_level"] == "info"]


def test_what_goes_on_is_told_when_it_begins_and_every_ten_minutes() -> None:
    scene = Scene()

    assert scene.tells(FORBIDDEN, pause=INITIAL_DELAY / 2)
    assert not scene.tells(FORBIDDEN, pause=30)
    scene.clock.advance(REPEAT_SECONDS)
    assert scene.tells(FORBIDDEN, pause=30)
    assert not scene.tells(FORBIDDEN, pause=30)


@pytest.mark.parametrize(
    ("code", "word"), [(401, "credentials"), (403, "roles"), (404, "CustomResourceDefinition"), (503, "none needed")]
)
def test_what_to_do_depends_on_what_the_server_said(code: int, word: str) -> None:
    troubles = WatchErrorLog(FakeClock())
    with capture_logs() as logs:
        troubles.log_error(CacheError(resource="pods", error=error_from_status({"code": code}), retry_after=0.5))

    assert word in logs[0]["remedy"]


def test_another_trouble_and_another_kind_are_news() -> None:
    scene = Scene()
    scene.tells(FORBIDDEN, pause=INITIAL_DELAY)

    assert scene.tells(BUSY, pause=30)
    assert scene.tells(FORBIDDEN, pause=30, resource="persistentvolumes")


def test_what_comes_again_after_a_time_of_quiet_is_told_again() -> None:
    scene = Scene()
    scene.tells(BUSY, pause=INITIAL_DELAY)
    scene.clock.advance(200)

    assert scene.tells(BUSY, pause=INITIAL_DELAY)


def test_the_end_of_what_was_told_is_told_once() -> None:
    scene = Scene()
    scene.tells(BUSY, pause=INITIAL_DELAY)

    assert scene.ends(resource="pods") == []
    assert scene.ends() == ["nodes: the server responds again after 12.3 s"]
    assert scene.ends() == []


def test_a_deaf_watch_is_a_warning_and_more_of_them_are_not() -> None:
    clock = FakeClock()
    troubles = WatchErrorLog(clock)
    with capture_logs() as logs:
        for _ in range(3):
            troubles.log_lost_watch(LostWatch("services", "deaf", 1.0))
        troubles.log_lost_watch(LostWatch("services", "gap", lists_again=True))
        clock.advance(REPEAT_SECONDS)
        troubles.log_lost_watch(LostWatch("services", "deaf", 16.0, lists_again=True))

    new_watch, new_list = "a new watch continues after the last change", "all objects are listed again"
    assert [line["trouble"] for line in logs if line["log_level"] == "warning"] == [
        f"services: the watch delivered nothing for 1 s, although the server had answered a write; {new_watch}",
        f"services: the watch missed a change, although the server had answered a write; {new_list}",
        f"services: the watch delivered nothing for 16 s, although the server had answered a write; {new_list}",
    ]
    assert "--watch-cache-sizes=services#0" in logs[0]["remedy"]
