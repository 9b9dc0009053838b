from __future__ import annotations

import datetime as dt

from tarragon.kube.codec import decode, encode, micro_timestamp, moment, timestamp
from tarragon.kube.core import PODS, Pod
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference, body
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
    assert moment(timestamp(NOON)) == NOON
    assert micro_timestamp(NOON) == "2026-01-01T12:00:00.000000Z"


def test_the_same_words_about_the_same_object_are_one_event() -> None:
    once = Event(about=JOB, type="Normal", reason="Created", message="made pod a-0")
    again = Event(about=JOB, type="Normal", reason="Created", message="made pod a-0")
    other = Event(about=JOB, type="Normal", reason="Created", message="made pod a-1")
    assert once.name == again.name != other.name


def test_a_message_is_cut_at_the_limit_of_the_server_and_stays_text() -> None:
    event = Event(about=JOB, type="Warning", reason="Failed", message="ä" * MESSAGE_LIMIT)
    message = body(event, NOON, "tarragon")["message"]
    assert len(message.encode()) == MESSAGE_LIMIT
    assert set(message) == {"ä"}


def test_json_is_compact() -> None:
    assert encode({"a": [1, None]}) == b'{"a":[1,null]}'
