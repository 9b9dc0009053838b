"""`tarragon.report`, in this process and in programs that have only a copy of its file, against a real server."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import logging
import os
import queue
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import tarragon
from tarragon import reporting
from tarragon.reporting import CA_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, Reporter
from tests.logs.programs import pythons

PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    token: str
    body: dict[str, Any]

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["trainerStatus"]
        return found

    @property
    def metrics(self) -> dict[str, str]:
        return {metric["name"]: metric["value"] for metric in self.status["metrics"]}


@dataclass(kw_only=True)
class Server:
    """Answers each report with the first of `answers`, and with 200 when there is none."""

    url: str
    folder: Path
    requests: queue.Queue[Request] = field(default_factory=queue.Queue)
    answers: list[int] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def env(self) -> dict[str, str]:
        return {
            URL_VARIABLE: f"{self.url}/jobs/one/status",
            CA_VARIABLE: str(self.folder / "ca.crt"),
            TOKEN_VARIABLE: str(self.folder / "token"),
        }

    def next(self) -> Request:
        return self.requests.get(timeout=PATIENCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    trusted = _certificate(tmp_path)
    (tmp_path / "token").write_text("first\n")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.requests.put(Request(self.path, self.headers["Authorization"], body))
            served.may_answer.wait(PATIENCE)
            self.send_response(served.answers.pop(0) if served.answers else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.socket = trusted.wrap_socket(listening.socket, server_side=True)
    served = Server(url=f"https://127.0.0.1:{listening.server_port}", folder=tmp_path)
    served.may_answer.set()
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield served
    served.may_answer.set()
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def reporter(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reporter]:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    made = Reporter(seconds_between=3600)
    monkeypatch.setattr(reporting, "_reporter", made)
    yield made
    server.may_answer.set()
    made.flush(0)


def _certificate(folder: Path) -> ssl.SSLContext:
    """Write `ca.crt` and return the context of a server that it trusts."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.crt").write_bytes(pem)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(pem + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


# ------------------------------------------------------------------------------------------------------ what is sent


def test_a_report_has_the_form_of_kubeflow_trainer(server: Server, reporter: Reporter) -> None:
    tarragon.report(step=1, of=10, loss=0.3, accuracy=0.875)

    request = server.next()
    assert request.path == "/jobs/one/status"
    assert request.token == "Bearer first"
    assert request.metrics == {"step": "1", "total_steps": "10", "loss": "0.3", "accuracy": "0.875"}
    assert request.status["progressPercentage"] == 10
    assert dt.datetime.fromisoformat(request.status["lastUpdatedTime"]).tzinfo is not None


def test_the_time_that_is_left_is_known_from_the_second_report_on(server: Server, reporter: Reporter) -> None:
    tarragon.report(step=1, of=10)
    assert "estimatedRemainingSeconds" not in server.next().status

    tarragon.report(step=10, of=10)

    assert server.next().status["estimatedRemainingSeconds"] == 0


def test_the_last_step_is_reported_at_once(server: Server, reporter: Reporter) -> None:
    for step in range(1, 11):
        tarragon.report(step=step, of=10)
        if step == 1:
            server.next()

    assert server.next().metrics["step"] == "10"
    assert server.requests.empty()


def test_after_the_pause_the_newest_report_is_sent(
    server: Server, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "_reporter", Reporter(seconds_between=0.2))
    server.may_answer.clear()
    tarragon.report(step=1, of=100)
    server.next()
    for step in range(2, 51):
        tarragon.report(step=step, of=100)
    server.may_answer.set()

    assert server.next().metrics["step"] == "50"


def test_the_token_is_read_anew_for_each_report(server: Server, reporter: Reporter) -> None:
    tarragon.report(step=1, of=2)
    assert server.next().token == "Bearer first"

    (server.folder / "token").write_text("second")
    tarragon.report(step=2, of=2)

    assert server.next().token == "Bearer second"


def test_anything_that_is_a_number_can_be_reported(server: Server, reporter: Reporter) -> None:
    import numpy as np

    tarragon.report(step=np.int64(3), of=np.int32(4), loss=np.float32(0.25), steps_per_second=1e12)

    assert server.next().metrics == {"step": "3", "total_steps": "4", "loss": "0.25", "steps_per_second": "1e+12"}


# ------------------------------------------------------------------------------------------------- what must not happen


def test_without_a_server_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reporter()
    monkeypatch.setattr(reporting, "_reporter", made)
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    before = threading.active_count()

    tarragon.report(step=1, of=10)

    assert threading.active_count() == before


def test_a_training_does_not_wait_for_the_server(server: Server, reporter: Reporter) -> None:
    server.may_answer.clear()
    tarragon.report(step=1, of=3)
    server.next()

    tarragon.report(step=2, of=3)
    tarragon.report(step=3, of=3)

    assert server.requests.empty()
    server.may_answer.set()
    assert server.next().metrics["step"] == "3"


@pytest.mark.parametrize("status", [401, 403, 404, 422, 429, 500, 307])
def test_a_refused_report_is_logged_once_and_the_next_one_is_sent(
    server: Server, reporter: Reporter, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server.answers += [status, status]
    for step in (3, 4, 5):
        tarragon.report(step=step, of=step)
        server.next()
    reporter.flush()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"127.0.0.1 answered {status}" in caplog.text


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:1/", "https://[", "file:///etc/passwd", "https://127.0.0.1:99999/", "nonsense", "http://\n/"],
)
def test_a_server_that_cannot_be_reached_is_logged_once(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)

    tarragon.report(step=1, of=1)
    reporter.flush(PATIENCE)
    tarragon.report(step=2, of=2)
    reporter.flush(PATIENCE)

    assert len(caplog.records) == 1
    assert "the training goes on" in caplog.text


def test_a_server_with_another_certificate_gets_no_token(
    server: Server, reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(CA_VARIABLE)

    tarragon.report(step=1, of=1)
    reporter.flush(PATIENCE)

    assert server.requests.empty()
    assert "certificate verify failed" in caplog.text


@pytest.mark.parametrize("bad", [{"step": "x"}, {"loss": "x"}, {"of": None, "loss": object()}, {"step": float("nan")}])
def test_a_wrong_argument_is_logged_and_not_raised(
    reporter: Reporter, caplog: pytest.LogCaptureFixture, bad: dict[str, Any]
) -> None:
    tarragon.report(**{"step": 1, "of": 2, **bad})
    reporter.flush(PATIENCE)

    assert len(caplog.records) == 1


# ------------------------------------------------------------------------------------------------------ other programs


def _run(server: Server, program: str, folder: Path, python: str = sys.executable) -> str:
    """Run a program that finds nothing but a copy of the module beside it."""
    shutil.copy(reporting.__file__, folder / "tarragon.py")
    (folder / "program.py").write_text(program)
    env = {"PATH": os.environ["PATH"], **server.env}
    ended = subprocess.run(
        [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); import program"],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("version", ["3.7", "3.8", "3.9", "3.11", "3.13"])
def test_a_copy_of_the_file_is_all_that_a_program_needs(server: Server, tmp_path: Path, version: str) -> None:
    python = pythons().get(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")

    output = _run(server, "import tarragon\ntarragon.report(step=10, of=10, loss=0.1)\n", tmp_path, str(python))

    assert server.next().metrics == {"step": "10", "total_steps": "10", "loss": "0.1"}
    assert output == ""


def test_what_was_not_sent_yet_is_sent_when_the_program_ends(server: Server, tmp_path: Path) -> None:
    _run(server, "import tarragon\nfor step in range(5): tarragon.report(step=step, of=10)\n", tmp_path)

    reported = [server.next().metrics["step"]]
    while not server.requests.empty():
        reported.append(server.next().metrics["step"])
    assert reported[-1] == "4"


def test_a_forked_process_reports_for_itself(server: Server, tmp_path: Path) -> None:
    program = (
        "import os, sys, tarragon\n"
        "tarragon.report(step=1, of=1)\n"
        "if not os.fork():\n"
        "    tarragon.report(step=2, of=2)\n"
        "    sys.exit()\n"
        "os.wait()\n"
    )

    _run(server, program, tmp_path)

    assert {server.next().metrics["step"], server.next().metrics["step"]} == {"1", "2"}


def test_importing_it_imports_no_network(tmp_path: Path) -> None:
    program = "import sys, tarragon; tarragon.report(step=1, of=2); print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "tarragon.reporting" in loaded
    assert not {"ssl", "socket", "json", "http", "urllib", "logging", "typing", "asyncio"} & {*loaded}
