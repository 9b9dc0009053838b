"""The interface of the cluster that a command uses: the embedded cluster of this machine, or one from a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.meta import Key, Resource

if TYPE_CHECKING:
    from pathlib import Path

    from tarragon.cli.jobview.follower import JobFollower
    from tarragon.client.http.client import HttpClient
    from tarragon.client.port import Client

T = TypeVar("T")

Notify = Callable[[str], None]
"""Prints a line for the user on stderr."""


class ClusterReader(Protocol):
    """The read methods of a `Client`. An embedded cluster offers them even if its server does not run."""

    async def get(self, resource: Resource[T], key: Key) -> T: ...

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS, /) -> ObjectList[T]: ...


@dataclass(frozen=True, slots=True)
class CommandPrefix:
    """How to call tarragon for this cluster, and its default namespace: for commands that are suggested to the user."""

    program: str
    namespace: str


class ClusterTarget(Protocol):
    """A cluster that a command uses, and the ways to connect to it.

    The context managers translate the errors that leave them into messages about this cluster.
    """

    @property
    def namespace(self) -> str:
        """The namespace in which jobs are looked up."""
        ...

    @property
    def name(self) -> str:
        """The name in messages: `local (/home/me/.tarragon)`, `context prod (https://10.0.0.1:6443)`."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded cluster of this user."""
        ...

    @property
    def nodes_folder(self) -> Path | None:
        """The folder with the nodes' data and the pods' logs; None if the pods run on other machines."""
        ...

    @property
    def command_prefix(self) -> CommandPrefix: ...

    def writing(self, clock: Clock) -> AbstractAsyncContextManager[HttpClient]:
        """Connects in order to change something. Starts the embedded cluster if it does not run."""
        ...

    def reading(self) -> AbstractAsyncContextManager[ClusterReader]:
        """Connects in order to read. Reads the database of an embedded cluster that does not run."""
        ...

    def selecting(self) -> AbstractAsyncContextManager[ClusterReader]:
        """Connects in order to read what is then changed: `writing` starts an embedded cluster that does not run."""
        ...

    def watching(self) -> AbstractAsyncContextManager[Client]:
        """Connects in order to watch. The cluster must be running."""
        ...

    async def follow(self, follower: JobFollower, clock: Clock, note: Notify) -> None:
        """Returns when the job is over. Reconnects if the connection breaks or the embedded cluster dies."""
        ...


def is_offline_reader(reader: object) -> bool:
    """Whether it reads the database of a cluster that does not run, and is an `OfflineCluster`."""
    return bool(getattr(reader, "is_offline", False))
