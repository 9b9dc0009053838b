"""kubectl port-forward to processes, at the port in the manifest and at the translated port."""

from __future__ import annotations

import contextlib
import json
import os
import re

import pytest

from tests.streams.conftest import User
from tests.streams.test_commands import unique

pytestmark = [pytest.mark.kubectl, pytest.mark.slow, pytest.mark.timeout(300)]

# Listens at ADDRESS or else at PORT, and returns its whole input in capitals at the end of the input.
SHOUTS = """\
import os, socketserver

class Shout(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read().upper())

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

where = os.environ.get("ADDRESS", "127.0.0.1:" + os.environ.get("PORT", "0"))
server = Server(("127.0.0.1", int(where.rpartition(":")[2])), Shout)
print("at", server.server_address[1], flush=True)
server.serve_forever()
"""


def shouting(user: User, name: str, **env: str) -> int:
    """Create a pod that returns its input in capitals. Returns its port on this machine."""
    variables = [{"name": key, "value": value} for key, value in env.items()]
    user.pod(name, f"exec python -c '{SHOUTS}'", env=variables, ports=[{"containerPort": 6006, "name": "web"}])
    while not (found := re.search(r"at (\d+)", user.kubectl("logs", name).out)):
        pass
    return int(found[1])


def test_megabytes_are_forwarded_both_ways_and_each_direction_closes_separately(user: User) -> None:
    name = unique(user, "shouts")
    port = shouting(user, name)
    data = os.urandom(1 << 20).hex().encode() * 10

    forwarding = user.forwarded(f"pod/{name}", port)

    assert forwarding.ask(data) == data.upper()
    assert forwarding.ask(b"again") == b"AGAIN"
    forwarding.end()


def test_a_service_is_forwarded_to_the_translated_port_of_its_pod(user: User) -> None:
    name = unique(user, "board")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "web"}]},
    }
    assert user.kubectl("create", "-f", "-", stdin=json.dumps(service)).code == 0
    assert shouting(user, name, ADDRESS=f"{name}.default.svc:80") not in {80, 6006}

    by_pod = user.forwarded(f"pod/{name}", 6006)
    assert by_pod.ask(b"pod") == b"POD"
    by_pod.end()
    by_service = user.forwarded(f"svc/{name}", 80)
    assert by_service.ask(b"service") == b"SERVICE"
    by_service.end()


def test_a_port_on_which_the_pod_does_not_listen_is_refused(user: User) -> None:
    name = unique(user, "elsewhere")
    strangers = shouting(user, name)

    forwarding = user.forwarded("pod/p", strangers)
    with contextlib.suppress(ConnectionError):
        assert forwarding.ask(b"anybody?") == b""

    # A refused connection ends kubectl on a real node too.
    complaint = forwarding.process.communicate(timeout=60)[1].decode()
    assert f"dial tcp 127.0.0.1:{strangers}: connect: connection refused" in complaint
    assert complaint.endswith("error: lost connection to pod\n")
