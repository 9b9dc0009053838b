from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.kubelet.network.address_translation import (
    ServiceAddress,
    find_address_pairs,
    find_addresses,
    localize_address_pairs,
    localize_addresses,
    localize_paths,
)

PS = ServiceAddress(namespace="default", name="mnist-ps-0", port=2222)
WORKER = ServiceAddress(namespace="default", name="mnist-worker-0", port=2222)
SHORT = ServiceAddress(namespace="", name="mnist-ps-0", port=2222)
LOCAL = {PS: 20001, WORKER: 20002, SHORT: 20001}


def lookup(address: ServiceAddress) -> int | None:
    """Full names are always Services of the cluster; short names only if there is such a Service."""
    return LOCAL.get(address, 29999 if address.namespace else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist-ps-0.default.svc:2222", "127.0.0.1:20001"),
        ("mnist-ps-0.default.svc.cluster.local:2222", "127.0.0.1:20001"),
        ("mnist-ps-0.default.svc.cluster.local.:2222", "127.0.0.1:20001"),
        ("mnist-ps-0:2222", "127.0.0.1:20001"),
        ("--ps_hosts=mnist-ps-0:2222,mnist-worker-0.default.svc:2222", "--ps_hosts=127.0.0.1:20001,127.0.0.1:20002"),
        ("ps|mnist-ps-0:2222;worker|mnist-worker-0.default.svc:2222", "ps|127.0.0.1:20001;worker|127.0.0.1:20002"),
        ("grpc://mnist-ps-0:2222", "grpc://127.0.0.1:20001"),
        ("http://mnist-ps-0.default.svc:2222/path?q=1", "http://127.0.0.1:20001/path?q=1"),
        ("http://mnist-ps-0.default.svc:2222?q=1", "http://127.0.0.1:20001?q=1"),
        (
            "mnist-ps-0:2222 slots=1\nmnist-worker-0.default.svc:2222 slots=1\n",
            "127.0.0.1:20001 slots=1\n127.0.0.1:20002 slots=1\n",
        ),
        ('{"a": "x\\nmnist-ps-0:2222\\n"}', '{"a": "x\\n127.0.0.1:20001\\n"}'),
        (r'"{\"ps\": [\"mnist-ps-0:2222\"]}"', r'"{\"ps\": [\"127.0.0.1:20001\"]}"'),
        ("host0.mnist-ps.default.svc:2222", "127.0.0.1:29999"),
        ("user@mnist-ps-0:2222", "user@127.0.0.1:20001"),
    ],
)
def test_a_service_address_is_translated_to_a_local_port(text: str, expected: str) -> None:
    assert localize_addresses(text, lookup) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mnist-ps-0",
        "mnist-ps-0.default.svc",
        "mnist-ps-1:2222",
        "mnist-ps-0:22222",
        "mnist-ps-0:222",
        "mnist-ps-0:0",
        "mnist-ps-0.default.svc:65536",
        "mnist-ps-0.default.svc:123456",
        "mnist-ps-0.default.svc:2222x",
        "mnist-ps-0.default.svc:2222.5",
        "mnist-ps-0.default.svc:2222:3",
        "Mnist-ps-0.default.svc:2222",
        "_mnist-ps-0.default.svc:2222",
        "my-mnist-ps-0:2222",
        "-mnist-ps-0:2222",
        "a:mnist-ps-0:2222",
        "mnist-ps-0-:2222",
        "mnist-ps-0..default.svc:2222",
        "a.b.c.default.svc:2222",
        "docker.io/mnist:2222",
        "localhost:8080",
        "127.0.0.1:2222",
        "[::1]:2222",
        "example.com:443",
        "12:30:59",
        "mnist-ps-0 :2222",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert localize_addresses(text, lookup) == text


def test_tf_config_stays_valid_json_with_local_addresses() -> None:
    cluster = {"ps": ["mnist-ps-0.default.svc:2222"], "worker": ["mnist-worker-0.default.svc:2222"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}, "environment": "cloud"})

    config = json.loads(localize_addresses(text, lookup))

    assert config["cluster"] == {"ps": ["127.0.0.1:20001"], "worker": ["127.0.0.1:20002"]}
    assert config["task"] == {"type": "ps", "index": 0}


DELIMITERS = [" ", "\n", "\t", '"', "'", ",", ";", "|", "=", "/", "[", "]", "{", "}", "(", ")", "<", ">", "&"]
KNOWN = {
    "mnist-ps-0.default.svc:2222": "127.0.0.1:20001",
    "mnist-worker-0.default.svc.cluster.local:2222": "127.0.0.1:20002",
    "mnist-ps-0:2222": "127.0.0.1:20001",
}
# Fragments of addresses joined at random, which resemble addresses most.
FRAGMENTS = [
    "mnist-ps-0",
    ".default",
    ".svc",
    ":2222",
    ":",
    ".",
    "-",
    "A",
    "_",
    "é",
    "2",
    ".cluster.local",
    "$",
    "%",
    "\\x",
]
OTHER = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join)


@given(st.lists(st.tuples(st.one_of(st.sampled_from(sorted(KNOWN)), OTHER), st.sampled_from(DELIMITERS)), max_size=12))
def test_only_tokens_that_are_addresses_change(pieces: list[tuple[str, str]]) -> None:
    def only_known(address: ServiceAddress) -> int | None:
        return LOCAL.get(address)

    text = "".join(token + delimiter for token, delimiter in pieces)

    translated = localize_addresses(text, only_known)

    # `FRAGMENTS` can spell a known address in another way: with a domain behind `svc`, or with a dot at its end.
    expected = "".join((KNOWN.get(token) or respelled(token)) + delimiter for token, delimiter in pieces)
    assert translated == expected


def respelled(token: str) -> str:
    full = r"mnist-ps-0\.default\.svc(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?:2222"
    return "127.0.0.1:20001" if re.fullmatch(full, token) else token


@given(st.text())
def test_text_without_known_addresses_is_unchanged(text: str) -> None:
    assert localize_addresses(text, lambda _: None) == text


def test_all_mentioned_addresses_are_found() -> None:
    text = 'A=mnist-ps-0.default.svc:2222 {"x": ["mnist-worker-0.default.svc:2222"]} python:3'

    assert find_addresses(text) == {PS, WORKER, ServiceAddress(namespace="", name="python", port=3)}


def localized(**variables: str) -> dict[str, str]:
    """The variables after the translation of their pairs. Only the Service `mnist-ps-0` is known."""
    pairs = find_address_pairs(variables)
    return localize_address_pairs(variables, pairs, lookup)


@pytest.mark.parametrize("host", ["mnist-ps-0", "mnist-ps-0.default.svc", "mnist-ps-0.default.svc.cluster.local"])
@pytest.mark.parametrize("suffix", ["ADDR", "ADDRESS", "HOST"])
def test_a_host_and_a_port_in_two_variables_are_translated_together(host: str, suffix: str) -> None:
    variables = {f"MASTER_{suffix}": host, "MASTER_PORT": "2222", "RANK": "1"}

    assert localized(**variables) == {f"MASTER_{suffix}": "127.0.0.1", "MASTER_PORT": "20001", "RANK": "1"}


def test_the_host_name_of_a_pod_and_a_port_are_a_pair_without_a_namespace_too() -> None:
    variables = {"MASTER_ADDR": "ring-0.ring", "MASTER_PORT": "29500"}

    (pair,) = find_address_pairs(variables)

    assert (pair.address.name, pair.address.service, pair.address.port) == ("ring-0.ring", "ring", 29500)


@pytest.mark.parametrize(
    "variables",
    [
        {"MASTER_ADDR": "mnist-ps-0"},
        {"MASTER_PORT": "2222"},
        {"MASTER_ADDR": "mnist-ps-0", "WORKER_PORT": "2222"},
        {"MASTER_ADDR": "mnist-ps-0", "MASTER_PORT": "2223"},
        {"MASTER_ADDR": "mnist-ps-0", "MASTER_PORT": "tcp://10.0.0.1:2222"},
        {"MASTER_ADDR": "mnist-ps-0:2222", "MASTER_PORT": "2222"},
        {"MASTER_ADDR": "", "MASTER_PORT": "2222"},
        {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "2222"},
        {"MASTER_ADDR": "mnist-ps-0,mnist-ps-0", "MASTER_PORT": "2222"},
        {"MASTER_ADDR": "mnist-ps-0", "MASTER_PORT": "0"},
        {"MASTER_ADDR": "mnist-ps-0", "MASTER_PORT": "99999"},
    ],
)
def test_other_variables_are_not_a_pair(variables: dict[str, str]) -> None:
    assert localized(**variables) == variables


PLACES = {
    "/data": Path("/node/claims/data"),
    "/data/runs": Path("/node/runs"),
    "/opt/train/x.py": Path("/node/cm/x.py"),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/node/claims/data"),
        ("/data/", "/node/claims/data/"),
        ("/data/a/b.csv", "/node/claims/data/a/b.csv"),
        ("/data/runs/1", "/node/runs/1"),
        ("/data/runs2", "/node/claims/data/runs2"),
        ("/opt/train/x.py", "/node/cm/x.py"),
        ("--data=/data,/data/runs", "--data=/node/claims/data,/node/runs"),
        ("/usr/lib:/data/lib", "/usr/lib:/node/claims/data/lib"),
        ("python /opt/train/x.py --dir /data/*.csv", "python /node/cm/x.py --dir /node/claims/data/*.csv"),
        ("cd /data && ls", "cd /node/claims/data && ls"),
        ("file:///data/x", "file:///node/claims/data/x"),
        ('{"dir": "/data"}', '{"dir": "/node/claims/data"}'),
        ("cat</data/in>/data/out", "cat</node/claims/data/in>/node/claims/data/out"),
    ],
)
def test_a_mount_path_is_translated_to_the_path_of_its_volume(text: str, expected: str) -> None:
    assert localize_paths(text, PLACES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/database",
        "/data.csv",
        "/data-old",
        "/my/data",
        "data/x",
        "./data",
        "../data",
        "~/data",
        "$HOME/data",
        "${HOME}/data",
        "$(pwd)/data",
        "gs://data/x",
        "hdfs:///data/x",
        "http://host/data",
        "/opt/train/x.pyc",
        "/opt/train",
        "/DATA",
    ],
)
def test_text_that_only_resembles_a_mount_path_is_unchanged(text: str) -> None:
    assert localize_paths(text, PLACES) == text


@given(st.text(alphabet="/dat.x ,:=\"'$(){}runs-"))
def test_text_is_unchanged_without_mounts(text: str) -> None:
    assert localize_paths(text, {}) == text


@given(st.lists(st.sampled_from(["/data", "/data/runs", "/x", "a", " ", ",", "=", ":", "/", "."]), max_size=10))
def test_a_local_path_that_contains_a_mount_path_is_not_translated_again(parts: list[str]) -> None:
    text = "".join(parts)
    marked = localize_paths(text, {"/data": Path("/data/here")})

    assert marked.replace("/data/here", "/data") == text
