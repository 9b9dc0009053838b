from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube.codec import decode, encode, format_micro_time, format_time, parse_time
from tarragon.kube.core import PODS, Pod
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference, event_object
from tarragon.kube.meta import Key

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
JOB = ObjectReference(api_version="kubeflow.org/v1", kind="TFJob", key=Key("ns", "a"), uid="u")


def test_a_pod_is_read_without_what_we_do_not_know() -> None:
    pod = decode(
        '{"apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u","selfLink":"/x"},'
        '"spec":{"containers":[{"name":"c","tty":true}]},'
        '"status":{"phase":"Running","containerStatuses":[{"name":"c","restartCount":2,"containerID":"x://1",'
        '"state":{"terminated":{"exitCode":137,"finishedAt":"2026-01-01T12:00:00Z"}}}]}}',
        Pod,
    )
    assert pod.metadata.key == Key("b", "a")
    status = pod.container_status("c")
    assert status is not None
    assert status.container_id == "x://1"
    assert status.state.terminated is not None
    assert status.state.terminated.finished_at == NOON


def test_paths_are_those_of_the_api() -> None:
    assert PODS.path("ns", "a", "log") == "/api/v1/namespaces/ns/pods/a/log"
    assert PODS.path() == "/api/v1/pods"


def test_times_read_back_as_they_were_written() -> None:
    assert parse_time(format_time(NOON)) == NOON
    assert format_micro_time(NOON) == "2026-01-01T12:00:00.000000Z"


def test_years_have_four_digits() -> None:
    assert format_time(dt.datetime.min.replace(tzinfo=dt.UTC)) == "0001-01-01T00:00:00Z"
    assert format_micro_time(dt.datetime.min.replace(tzinfo=dt.UTC)) == "0001-01-01T00:00:00.000000Z"
    assert format_micro_time(NOON.replace(microsecond=45)) == "2026-01-01T12:00:00.000045Z"


BEYOND = [
    ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"),
    ("0001-01-01T00:00:00.5+00:01", "0001-01-01T00:00:00Z"),
    ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"),
]


@pytest.mark.parametrize(("text", "written"), BEYOND)
def test_a_time_that_utc_puts_beyond_the_calendar_is_written_as_its_end(text: str, written: str) -> None:
    found = decode(f'"{text}"', dt.datetime)

    assert format_time(found) == written
    assert format_time(parse_time(format_micro_time(found))) == written


@pytest.mark.parametrize("text", [text for text, _ in BEYOND])
def test_a_time_that_utc_puts_beyond_the_calendar_can_t_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="year"):
        parse_time(text)


@given(st.datetimes(), st.integers(-1439, 1439))
def test_every_time_can_be_written_and_read_again(naive: dt.datetime, minutes: int) -> None:
    at = naive.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))

    for text in (format_time(at), format_micro_time(at)):
        assert abs(parse_time(text) - at) <= dt.timedelta(days=1)


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}([-+][0-9]{2}:[0-9]{2}|Z)"))
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with suppress(ValueError):
        parse_time(text)


def test_the_same_words_about_the_same_object_are_one_event() -> None:
    once = Event(involved_object=JOB, type="Normal", reason="Created", message="made pod a-0")
    again = Event(involved_object=JOB, type="Normal", reason="Created", message="made pod a-0")
    other = Event(involved_object=JOB, type="Normal", reason="Created", message="made pod a-1")
    assert once.name == again.name != other.name


def test_a_message_is_cut_at_the_limit_of_the_server_and_stays_text() -> None:
    event = Event(involved_object=JOB, type="Warning", reason="Failed", message="ä" * MESSAGE_LIMIT)
    message = event_object(event, NOON, "tarragon")["message"]
    assert len(message.encode()) == MESSAGE_LIMIT
    assert set(message) == {"ä"}


def test_json_is_compact() -> None:
    assert encode({"a": [1, None]}) == b'{"a":[1,null]}'
