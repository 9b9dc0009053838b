"""Machines of a cluster beside this one, whose pods are containers of the image.

Each is a network of its own, in which only the API server can be reached: two operators with one network would want
the same ports.
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.image.container import TEMPORARY, Container
from tests.real.site import Site, end, end_replicas

LABEL = "tests/for"
"""Jobs are not placed there: the same is a taint."""
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


class Machine:
    """A process node in a network of its own. Ready on return."""

    def __init__(self, site: Site, name: str, container: Container, image: str) -> None:
        self.folder = site.folder / name
        script = self.folder / "bin" / "enter"
        script.parent.mkdir(parents=True)
        script.write_text(entrance(container))
        script.chmod(0o755)
        images = {image: {"folder": str(self.folder), "entrypoint": [script.name]}}
        (self.folder / "images.yaml").write_text(yaml.safe_dump(images))
        config = site.plane.user(f"system:node:{name}", ["system:nodes"])
        flags = {
            "--kubeconfig": str(config),
            "--client-ca-file": str(site.plane.folder / "ca.crt"),
            "--name": name,
            "--address": "127.0.0.1",
            "--label": f"{LABEL}=operators",
            "--taint": f"{LABEL}=operators:NoSchedule",
        }
        command = [sys.executable, "-m", "tarragon", "node", *(word for pair in flags.items() for word in pair)]
        environment = {**os.environ, "TARRAGON_HOME": str(self.folder)}
        port = int(urlsplit(site.plane.url).port or 0)
        self._network = Network(port)
        self._process = self._network.start(command, environment, site.folder / f"{name}.log")
        assert self._process.stdout
        assert self._process.stdout.readline().startswith("ready"), site.logs()

    def stop(self) -> None:
        end(self._process)
        end_replicas(self.folder)
        self._network.close()


def entrance(container: Container) -> str:
    """A script that runs the image's program with the arguments, variables and volumes of a pod of the Deployment."""
    user = container.config["User"]
    lines = [
        # The node has put the paths of its volumes into these variables. It knows no fsGroup.
        "account=$TARRAGON_SERVICE_ACCOUNT temporary=$HOME",
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


class Network:
    """A network in which this port of 127.0.0.1 is the one of the machine's network, and nothing else is there."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.socket()
        self._threads: list[threading.Thread] = []

    def start(self, command: list[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[str]:
        """Start a command in it."""
        started: list[subprocess.Popen[str]] = []

        def start() -> None:
            # The network is that of a thread, and of the sockets and programs that the thread makes.
            if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "no network of its own")
            self._listen()
            with log.open("a") as file:
                started.append(
                    subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment)
                )

        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        self._in_thread(self._accept)
        return started[0]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _listen(self) -> None:
        self._listener.close()
        self._listener = socket.socket()
        fcntl.ioctl(self._listener, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        self._listener.bind(("127.0.0.1", self._port))
        self._listener.listen()

    def _in_thread(self, work: Callable[..., None], *what: socket.socket) -> None:
        thread = threading.Thread(target=work, args=what, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the end
            while True:
                self._in_thread(self._forward, self._listener.accept()[0])

    def _forward(self, inner: socket.socket) -> None:
        with inner, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as outer:
            back = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
            back.start()
            _copy(inner, outer)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    # The other direction ends, too.
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
