"""A server like `tarragon up`, without the command line. It serves the home in TARRAGON_HOME.

python -m tests.lifecycle.serve [node=NAME] [idle=SECONDS] [port=N] [version=V] [fail] [buggy]
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from tarragon.base import logging
from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.client.port import Client
from tarragon.localcluster.daemon import serving
from tarragon.localcluster.daemon.cluster import LocalClusterSettings
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo
from tarragon.localcluster.kubelet.node.machine import machine_capacity
from tarragon.localcluster.kubelet.node.node import NodeSettings


async def companion(cluster: Client) -> None:
    """A substitute for the operator: it is always active in process, which must not count as activity of a client."""
    from tarragon.kube.core import PODS

    clock = SystemClock()
    while True:
        await cluster.list(PODS)
        await clock.sleep(0.05)


async def buggy(_: Client) -> None:
    raise ZeroDivisionError("a bug in a companion")


def this_node(home: Home, name: str) -> NodeSettings:
    """The settings of a node whose ports no other home uses."""
    return NodeSettings(
        name=name,
        folder=home.nodes / name,
        capacity=machine_capacity(home.nodes),
        overcommitted=frozenset({"cpu"}),
        port_registry=home.folder / "claimed-ports",
    )


def print_ready(server: ServerInfo) -> None:
    sys.stdout.write(f"ready {server.url}\n")
    sys.stdout.flush()


def main(given: Mapping[str, str]) -> int:
    logging.configure("text")
    if "version" in given:
        # The version that another release would publish.
        vars(serving)["__version__"] = given["version"]
    if "fail" in given:
        sys.stderr.write("it is a bad day\n")
        return 3
    home = Home.from_environment(os.environ)
    settings = LocalClusterSettings(
        home=home,
        nodes=[this_node(home, given["node"])] if "node" in given else [],
        port=int(given["port"]) if "port" in given else None,
        idle_seconds=float(given["idle"]) if "idle" in given else None,
    )
    companions = [companion, *([buggy] if "buggy" in given else [])]
    try:
        asyncio.run(serving.serve(settings, SystemClock(), companions, print_ready))
    except TarragonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(dict(word.partition("=")[::2] for word in sys.argv[1:])))
