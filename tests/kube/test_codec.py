from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.kube.codec import decode
from tarragon.kube.core import Node, Pod
from tarragon.kube.json_depth import MAX_DEPTH, TOO_DEEP_PLACEHOLDER
from tarragon.kube.meta import CustomObject, PartialObject
from tests.kube.test_json_depth import depth, nested


class Slim(PartialObject, frozen=True):
    name: str = ""
    raw: msgspec.Raw = msgspec.Raw(b"null")
    count: int = 0
    time: dt.datetime | None = None
    labels: dict[str, str] = {}


MODELS: list[type[Any]] = [dict, list, object, msgspec.Raw, Slim, Pod, Node, CustomObject]
# Pieces that JSON is made of, and pieces that break it: texts of them are often nearly right.
_SOUND = rb"""{ } [ ] " : , \ \u0000 null 1 - "name" "time" "count" "metadata" "spec" "labels" """.split()
_BROKEN = rb"""\ud800 1e999 NaN "9999-12-31T23:59:59-23:59" """.split()
_BYTES = [b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" ", b"\n", b"9" * 40]
_DEEP = [b'{"a":' * 1_200, b"[" * 3_000, b"}" * 1_200]
PIECES = st.sampled_from([*_SOUND, *_BROKEN, *_BYTES, *_DEEP])


@settings(max_examples=600)
@given(st.lists(PIECES, max_size=12).map(b"".join) | st.binary(max_size=40), st.sampled_from(MODELS))
def test_whatever_a_text_is_it_is_read_or_refused_in_one_way(text: bytes, model: type[Any]) -> None:
    try:
        decode(text, model)
    except msgspec.DecodeError:
        return


@pytest.mark.parametrize("levels", [985, 1_500, 9_900, 250_000])
def test_what_a_type_does_not_know_is_skipped_however_deep(levels: int) -> None:
    text = b'{"zz":' + nested(levels) + b',"name":"a","labels":{"b":"c"}}'

    assert decode(text, Slim) == Slim(name="a", labels={"b": "c"})


@pytest.mark.parametrize("levels", [985, 9_900])
def test_a_part_that_is_read_later_is_read_to_the_limit_too(levels: int) -> None:
    read = decode(b'{"raw":' + nested(levels) + b"}", Slim)

    assert depth(decode(bytes(read.raw), object)) == MAX_DEPTH


def job(spec: bytes = b"{}", status: bytes = b"{}", managed: bytes = b"[]") -> CustomObject:
    metadata = b'{"name":"a","namespace":"b","managedFields":' + managed + b"}"
    text = b'{"kind":"TFJob","metadata":' + metadata + b',"spec":' + spec + b',"status":' + status + b"}"
    return decode(text, CustomObject)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 985, 9_900])
def test_a_job_whose_spec_is_too_deep_is_there_with_its_name_and_its_fault(levels: int) -> None:
    found = job(spec=nested(levels), status=b'{"tarragon":{"state":"Running"}}')

    assert found.metadata.name == "a"
    assert found.spec_error == f"is nested deeper than {MAX_DEPTH} levels"
    assert depth(found.spec) == MAX_DEPTH
    assert found.status == {"tarragon": {"state": "Running"}}


def test_of_a_status_that_is_too_deep_all_else_counts() -> None:
    found = job(status=b'{"tarragon":{"state":"Running"},"zz":' + nested(2_000) + b"}")

    assert found.status["tarragon"] == {"state": "Running"}
    assert found.spec_error == ""


@pytest.mark.parametrize("spec", [b'"\xff"', b"1e999", b'{"a":"\xed\xa0\x80"}'])
def test_a_spec_that_is_no_json_of_ours_is_absent_and_says_why(spec: bytes) -> None:
    found = job(spec=spec)

    assert found.spec is None
    assert found.spec_error.startswith("can't be decoded: ")


@pytest.mark.parametrize("managed", [b'{"a":1}', b'[{"time":"never"}]', b"[" * 3_000 + b"]" * 3_000])
def test_managed_fields_that_nobody_can_have_written_are_none(managed: bytes) -> None:
    assert job(managed=managed).metadata.managed_fields == []


def test_managed_fields_that_are_too_deep_still_say_who_wrote_the_spec() -> None:
    entry = b'[{"manager":"m","apiVersion":"kubeflow.org/v1","fieldsV1":{"f:spec":' + nested(2_000) + b"}}]"

    [found] = job(managed=entry).metadata.managed_fields

    assert (found.manager, found.api_version) == ("m", "kubeflow.org/v1")
    assert TOO_DEEP_PLACEHOLDER in str(found.fields_v1["f:spec"])
