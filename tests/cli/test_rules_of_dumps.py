"""Rule 18: a debug dump has what helps and no secret, in whatever encoding."""

from __future__ import annotations

import base64
import json
import tarfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarragon.cli.debugdump.redaction import Redactor
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, python

pytestmark = pytest.mark.timeout(300)

IN_SECRET, IN_VARIABLE, ON_COMMAND = 'Tr0ub4dor&3 "q"/+', "s3cr3t-of-env-97", "hunter2hunter2"
IN_LOG_ONLY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF-123"
PLANTED = (IN_SECRET, IN_VARIABLE, ON_COMMAND, IN_LOG_ONLY, WEB_TOKEN)


def encodings(value: str) -> Iterator[tuple[bytes, bytes]]:
    """As this test can think of them, not as the program can: what is written, and what would give it away."""
    data = value.encode()
    for form in (
        data,
        json.dumps(value)[1:-1].encode(),
        urllib.parse.quote(value, safe="").encode(),
        data.hex().encode(),
    ):
        yield form, form
    for before in (b"", b"u:", b"x"):
        whole = base64.b64encode(before + data)
        cut = whole[4 if before else 0 : -4]
        yield whole, cut
        yield whole.replace(b"+", b"-").replace(b"/", b"_"), cut.replace(b"+", b"-").replace(b"/", b"_")


def given_away(value: str, data: bytes) -> list[bytes]:
    return [form for _, form in encodings(value) if form in data]


@pytest.mark.parametrize("value", PLANTED)
def test_rule_18_what_is_known_is_found_in_every_encoding(value: str) -> None:
    redactor = Redactor([value])
    text = b"\n".join(b"before " + form + b" behind" for form, _ in encodings(value)).decode()

    found = redactor.redact_text(text).encode()

    assert given_away(value, found) == []
    assert found.count(b"before ") == found.count(b" behind") == len(list(encodings(value)))


@pytest.mark.parametrize(
    "text",
    [
        "--password=hunter2x",
        "password: hunter2x",
        "API_KEY = 'hunter2x'",
        '{"token": "hunter2x"}',
        '["--token", "hunter2x"]',
        "curl --token hunter2x",
        "https://me:hunter2x@example.com/",
        "Authorization: Bearer hunter2x.abc",
    ],
)
def test_what_stands_where_secrets_stand_is_taken_out(text: str) -> None:
    assert "hunter2x" not in Redactor().redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "secretName: data-access",
        "automountServiceAccountToken: false",
        "the token expired after 3 days",
        "secretKeyRef:\n  name: access",
        "tokens per second: 1280",
        "worker-0 reached step 400",
    ],
)
def test_what_only_names_a_secret_stays(text: str) -> None:
    assert Redactor().redact_text(text) == text


def test_rule_18_an_archive_holds_what_helps_and_none_of_the_planted_secrets(shell: Shell) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"password": IN_SECRET}}
    says = (
        "import os, base64, sys; p = os.environ['DB']; print('plain', p); print(base64.b64encode(b'u:' + p.encode()));"
        f"print('{IN_LOG_ONLY}'); print('token: {WEB_TOKEN}'); print(os.environ['AWS_SECRET_ACCESS_KEY']); sys.exit(3)"
    )
    variables = [
        {"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
        {"name": "AWS_SECRET_ACCESS_KEY", "value": IN_VARIABLE},
    ]
    container = python(says, env=variables, args=[f"--password={ON_COMMAND}"])
    file = shell.file("job.yaml", f"{json.dumps(secret)}\n---\n{job('digits', Worker=group(container))}")
    assert shell("run", file).code == 100

    ended = shell("debug-dump", "digits", "--output", "dump.tar.gz")

    assert (ended.code, ended.out) == (0, "dump.tar.gz\n")
    path = Path(shell.folder, "dump.tar.gz")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        entries = [(member.name.removeprefix("dump/"), archive.extractfile(member)) for member in archive.getmembers()]
        files = {name: entry.read() for name, entry in entries if entry is not None}
    found = [(name, form) for name, data in files.items() for value in PLANTED for form in given_away(value, data)]
    assert found == []
    token = (shell.home / "token").read_bytes().strip()
    assert not any(token in data for data in files.values())
    assert {"README.txt", "jobs.yaml", "pods.yaml", "events.yaml", "check.txt", "versions.json"} <= files.keys()
    assert any(name.startswith("logs/digits-worker-0") for name in files)
    assert b"plain ***" in b"".join(files.values())
    assert b"exitCode: 3" in files["jobs.yaml"]
    assert b"Never included: kubeconfigs, Secrets" in files["README.txt"]
    assert "already exists" in shell("debug-dump", "digits", "--output", "dump.tar.gz").err


def test_a_dump_without_a_cluster_has_what_this_machine_knows(shell: Shell) -> None:
    ended = shell("debug-dump", "--output", "dump.tar.gz")

    assert ended.code == 0
    assert "check.txt" in ended.err
