"""The official Python client: exec, attach and port-forward over the channels of a WebSocket."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from tests.streams.conftest import User
from tests.streams.test_port_forward import shouting

# The client does not close its sockets.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def pods(cluster: User) -> Iterator[client.CoreV1Api]:
    yield client.CoreV1Api(config.new_client_from_config(str(cluster.config)))
    for thread in threading.enumerate():
        if thread.name.startswith("Kubernetes port forward proxy"):
            thread.join(10)
    gc.collect()


def test_exec_returns_output_and_exit_code(pods: client.CoreV1Api) -> None:
    line = stream(
        pods.connect_get_namespaced_pod_exec,
        *("p", "default"),
        command=["sh", "-c", "read x; echo got $x; echo bad >&2; exit 9"],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    line.write_stdin("seven\n")
    line.run_forever(timeout=30)

    assert (line.read_stdout(), line.read_stderr(), line.returncode) == ("got seven\n", "bad\n", 9)


def test_exec_returns_all_output(pods: client.CoreV1Api) -> None:
    output = stream(
        pods.connect_get_namespaced_pod_exec,
        "p",
        "default",
        command=["seq", "3"],
        stderr=True,
        stdout=True,
        stdin=False,
    )

    assert output == "1\n2\n3\n"


def test_a_forwarded_port_is_a_socket(pods: client.CoreV1Api, cluster: User) -> None:
    port = shouting(cluster, "python-client")

    forwarded = portforward(pods.connect_get_namespaced_pod_portforward, "python-client", "default", ports=str(port))
    line = forwarded.socket(port)
    line.setblocking(True)
    line.sendall(b"hello")
    line.close()

    assert forwarded.error(port) is None


def test_forwarding_to_a_closed_port_is_an_error(pods: client.CoreV1Api) -> None:
    forwarded = portforward(pods.connect_get_namespaced_pod_portforward, "p", "default", ports="7")
    line = forwarded.socket(7)
    line.setblocking(True)

    assert line.recv(100) == b""
    assert "connection refused" in forwarded.error(7)
