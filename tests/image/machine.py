"""Nodes whose pods run the operator's image, each in a network namespace of its own.

Two operators in one network would want the same ports. Nothing can be reached from such a node but the API server.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shlex
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.image.container import TEMPORARY, Container
from tests.real.site import Site, end, end_replicas

LABEL = "tests/for"
"""Jobs are not placed there: the same is a taint."""
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PATIENCE = 30.0
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


@contextmanager
def machines(site: Site, container: Container, image: str, count: int) -> Iterator[None]:
    """So many nodes, for pods of this image only. They are Ready, and end with all of their pods."""
    with ExitStack() as ending:
        for number in range(count):
            _start(site, f"operators-{number}", container, image, ending)
        yield


def _start(site: Site, name: str, container: Container, image: str, ending: ExitStack) -> None:
    folder = site.folder / name
    script = folder / "bin" / "enter"
    script.parent.mkdir(parents=True)
    script.write_text(entrypoint(container, folder))
    script.chmod(0o755)
    (folder / "images.yaml").write_text(yaml.safe_dump({image: {"folder": str(folder), "entrypoint": [script.name]}}))
    flags = {
        "--kubeconfig": str(site.plane.user(f"system:node:{name}", ["system:nodes"])),
        "--client-ca-file": str(site.plane.folder / "ca.crt"),
        "--name": name,
        "--address": "127.0.0.1",
        "--label": f"{LABEL}=operators",
        "--taint": f"{LABEL}=operators:NoSchedule",
    }
    command = [sys.executable, "-m", "tarragon", "node", *(word for pair in flags.items() for word in pair)]
    port = urlsplit(site.plane.url).port
    assert port is not None
    network = NetworkNamespace(port)
    ending.callback(network.close)
    ending.callback(end_replicas, folder)
    node = network.start(command, {**os.environ, "TARRAGON_HOME": str(folder)}, site.folder / f"{name}.log")
    ending.callback(end, node)
    assert node.stdout
    assert node.stdout.readline().startswith("ready"), site.logs()


def entrypoint(container: Container, folder: Path) -> str:
    """A script that runs the image's program with the arguments, variables and volumes of a pod of the Deployment.

    `folder` is that of the node, and of its pods.
    """
    user = container.config["User"]
    lines = [
        # The node has put the paths of its volumes into these variables.
        "account=$TARRAGON_SERVICE_ACCOUNT temporary=$HOME",
        f'for volume in "$account" "$temporary"; do case $volume in {folder}/*) ;; *) exit 1 ;; esac; done',
        # It knows no fsGroup.
        f'chown -RL {user} "$account" "$temporary"',
        *(f"export {shlex.quote(each)}" for each in container.config["Env"]),
        f"export HOME={TEMPORARY} TARRAGON_SERVICE_ACCOUNT={SERVICE_ACCOUNT}",
        container.script(
            shlex.join(container.config["Entrypoint"]) + ' "$@"',
            {SERVICE_ACCOUNT: '"$account"', TEMPORARY: '"$temporary"'},
        ),
    ]
    script = shlex.quote("\n".join(lines))
    return f'#!/bin/sh\nexec unshare --mount /bin/sh -ec {script} sh "$@"\n'


class NetworkNamespace:
    """Forwards this port of 127.0.0.1 to the same port outside. Nothing else is reachable in it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener: socket.socket | None = None
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    def start(self, command: list[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[str]:
        """Start a command in it."""
        # A namespace is that of a thread, and of the sockets and programs that the thread makes.
        with ThreadPoolExecutor(1) as inside, log.open("a") as file:
            self._listener = inside.submit(_listener_in_new_namespace, self._port).result()
            made = inside.submit(
                subprocess.Popen, command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
            )
            process: subprocess.Popen[str] = made.result()
        self._in_thread(self._accept, self._listener)
        return process

    def close(self) -> None:
        """Its programs have ended."""
        if self._listener is None:
            return
        self._is_closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()
        assert not any(thread.is_alive() for thread in self._threads), "a program still has a connection"

    def _in_thread(self, work: Callable[[socket.socket], None], what: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(what,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                inner, _ = listener.accept()
            except OSError:
                if self._is_closing:
                    return
                raise
            self._in_thread(self._forward, inner)

    def _forward(self, inner: socket.socket) -> None:
        with inner, suppress(ConnectionError), socket.create_connection(("127.0.0.1", self._port)) as outer:
            back = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
            back.start()
            _copy(inner, outer)
            back.join()


def _listener_in_new_namespace(port: int) -> socket.socket:
    """Of the thread that calls it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace could be made")
    listener = socket.socket()
    fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    # The other direction ends, too.
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
