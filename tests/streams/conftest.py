from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.localcluster.kubelet.builders import container_json

SECONDS = 60.0


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


class User:
    """A user with an embedded cluster in a process and an unmodified kubectl.

    With `websockets` False, kubectl uses SPDY like older clients.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config"
        self.websockets = True
        self._server: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "tarragon", "up", "--without-operator", "--kubeconfig", str(self.config)]
        with (self.folder / "up.log").open("ab") as log:
            self._server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment)
        assert self._server.stdout
        line = self._server.stdout.readline()
        assert line.startswith("ready"), self.server_log

    @property
    def server_log(self) -> str:
        return (self.folder / "up.log").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._server
        self._server.send_signal(number)
        self._server.communicate(timeout=SECONDS)
        return self._server.returncode

    @property
    def environment(self) -> Mapping[str, str]:
        output = str(self.websockets).lower()
        return {
            "HOME": str(self.folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TARRAGON_HOME": str(self.folder / "home"),
            "KUBECONFIG": str(self.config),
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": output,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": output,
        }

    def kubectl(self, *words: str, stdin: str | bytes = "") -> CommandResult:
        piped = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            ["kubectl", *words],
            input=piped,
            capture_output=True,
            env=self.environment,
            timeout=2 * SECONDS,
            check=False,
        )
        return CommandResult(
            done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a kubectl in the background."""
        return subprocess.Popen(
            ["kubectl", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def pod(self, name: str, script: str, **fields: object) -> None:
        """Create a pod, which is running on return."""
        container = container_json(command=["sh", "-c", script], **fields)
        volumes = [{"name": "data", "emptyDir": {}}] if "volumeMounts" in fields else []
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1},
        }
        done = self.kubectl("create", "-f", "-", stdin=json.dumps(body))
        assert done.code == 0, done.err
        assert self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={SECONDS:.0f}s").code == 0

    def terminal(self, *words: str, steps: list[tuple[str, str]]) -> CommandResult:
        """Run kubectl on a terminal of 111 columns and 33 rows. Each step is a text to wait for and an input."""
        pid, screen = pty.fork()
        if pid == 0:
            os.execvpe("kubectl", ["kubectl", *words], {**self.environment, "TERM": "xterm"})  # noqa: S606
        ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        output = _played(screen, list(steps))
        os.close(screen)
        _, status = os.waitpid(pid, 0)
        return CommandResult(os.waitstatus_to_exitcode(status), output, "")

    def forwarded(self, target: str, port: int) -> Forwarding:
        process = self.begin("port-forward", target, f":{port}")
        assert process.stdout
        line = process.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+) ->", line)
        assert found, line + (process.stderr.read().decode() if process.stderr else "")
        return Forwarding(process, int(found[1]))


@dataclass(frozen=True)
class Forwarding:
    process: subprocess.Popen[bytes]
    port: int

    def ask(self, words: bytes) -> bytes:
        """Send the input, and return the output until the other side closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as line:
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            output = b""
            while data := line.recv(1 << 20):
                output += data
            return output

    def end(self) -> str:
        """Stop the forwarding. Returns its error output."""
        self.process.terminate()
        return self.process.communicate(timeout=SECONDS)[1].decode()


def _played(screen: int, steps: list[tuple[str, str]]) -> str:
    output, seen, deadline = b"", 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if steps and steps[0][0].encode() in output[seen:]:
            seen = len(output)
            os.write(screen, steps.pop(0)[1].encode())
        if not select.select([screen], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(screen, 65536)
        except OSError:
            break
        output += data
    else:
        raise AssertionError(f"it did not end: {output!r}")
    return output.decode(errors="replace")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    user = User(tmp_path_factory.mktemp("streams"))
    user.start()
    env = [{"name": "COLOUR", "value": "blue"}]
    user.pod("p", "exec sleep 100000", env=env, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    yield user
    user.stop()
    subprocess.run(
        [sys.executable, "-m", "tarragon", "down"],
        env=user.environment,
        timeout=SECONDS,
        capture_output=True,
        check=False,
    )


@pytest.fixture(params=[True, False], ids=["websockets", "spdy"])
def user(cluster: User, request: pytest.FixtureRequest) -> User:
    """A user with the idle pod `p`, which has a volume at /data."""
    cluster.websockets = request.param
    return cluster
