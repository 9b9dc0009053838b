"""Bodies as kubectl 1.32 sent them, and bodies as nobody should."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.apiserver.http.protobuf import Malformed, decoded

# Recorded from `kubectl create ...`.
NAMESPACE = (
    "6b3873000a0f0a02763112094e616d657370616365121c0a140a047465616d12001a0022002a0032003800420012001a020a001a002200"
)
CONFIG_MAP = (
    "6b3873000a0f0a0276311209436f6e6669674d6170122b0a110a016312001a0022002a0032003800420012060a01611201621a0e0a05622e"
    "62696e120562696e00ff1a002200"
)
SECRET = (
    "6b3873000a0c0a0276311206536563726574122a0a110a017312001a0022002a0032003800420012130a0870617373776f7264120768756e"
    "746572321a001a002200"
)
SERVICE_ACCOUNT = (
    "6b3873000a140a027631120e536572766963654163636f756e7412140a120a02736112001a0022002a003200380042001a002200"
)
TOKEN_REQUEST = (
    "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52657175657374121a0a100a0012001a00"
    "22002a0032003800420012001a040a0012001a002200"
)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (
            NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "spec": {}, "status": {}},
        ),
        (
            CONFIG_MAP,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "c"},
                "data": {"a": "b"},
                "binaryData": {"b.bin": "YmluAP8="},
            },
        ),
        (
            SECRET,
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}},
        ),
        (SERVICE_ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}),
    ],
    ids=["namespace", "config map", "secret", "service account"],
)
def test_what_kubectl_sends_is_the_object_that_was_meant(recorded: str, expected: dict[str, object]) -> None:
    assert decoded(bytes.fromhex(recorded)) == expected


def test_a_kind_of_a_group_that_is_not_the_core_is_read_as_well() -> None:
    assert decoded(bytes.fromhex(TOKEN_REQUEST)) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
        "status": {"token": ""},
    }


def test_a_kind_that_kubernetes_does_not_have_is_nothing() -> None:
    assert decoded(bytes.fromhex(NAMESPACE).replace(b"Namespace", b"Namespork")) is None


def written_by_go() -> list[Any]:
    """Objects with random content, each encoded by Kubernetes' own Go types both ways."""
    pairs: list[Any] = json.loads(gzip.decompress((Path(__file__).parent / "bodies.json.gz").read_bytes()))
    return pairs


@pytest.mark.parametrize("pair", written_by_go(), ids=lambda pair: f"{pair['json']['kind']}")
def test_protobuf_says_what_json_says(pair: Any) -> None:
    assert decoded(bytes.fromhex(pair["protobuf"])) == without_nulls(pair["json"])


def without_nulls(value: Any) -> Any:
    """What is absent may be a null in the JSON that Go writes."""
    match value:
        case dict():
            return {name: without_nulls(each) for name, each in value.items() if each is not None}
        case list():
            return [without_nulls(each) for each in value]
        case _:
            return value


def test_a_body_that_is_cut_off_is_malformed() -> None:
    whole = bytes.fromhex(CONFIG_MAP)
    for length in (0, 3, 5, 7, 20, 40, 60, len(whole) - 6):
        with pytest.raises(Malformed):
            decoded(whole[:length])


@given(st.binary(max_size=200))
def test_no_bytes_are_worse_than_malformed(rest: bytes) -> None:
    for body in (rest, b"k8s\0" + rest, bytes.fromhex(SECRET)[:-20] + rest):
        with contextlib.suppress(Malformed):
            decoded(body)


@given(st.data())
def test_no_damage_is_worse_than_malformed(data: st.DataObject) -> None:
    body = bytearray.fromhex(data.draw(st.sampled_from([NAMESPACE, CONFIG_MAP, SECRET, SERVICE_ACCOUNT])))
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(Malformed):
        decoded(bytes(body))


def test_messages_within_messages_are_not_copied_once_for_each_level() -> None:
    def field(number: int, content: bytes) -> bytes:
        size = bytes([len(content) & 127 | 128, len(content) >> 7 & 127 | 128, len(content) >> 14])
        return bytes([(number << 3 | 2) & 127 | 128, number >> 4]) + size + content

    schema = field(2, b"\0" * 300_000)
    for _ in range(40):
        schema = field(28, schema)  # `not`, of a JSONSchemaProps
    kind = field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition")
    versions = field(1, b"v1") + field(4, field(1, schema))
    body = b"k8s\0" + field(1, kind) + field(2, field(2, field(7, versions)))
    decoded(body)  # the tables are made only once

    tracemalloc.start()
    read = decoded(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert read is not None
    assert "not" in read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert most < 3_000_000
