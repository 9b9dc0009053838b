"""Which cluster a command is about: the embedded one of this machine, or one that a kubeconfig names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.port import EVERYTHING, Listing, Selection
from tarragon.kube.meta import Key, Resource

if TYPE_CHECKING:
    from pathlib import Path

    from tarragon.cli.jobview.follower import Follower
    from tarragon.client.http.client import Http
    from tarragon.client.port import Cluster

T = TypeVar("T")

Note = Callable[[str], None]
"""Tells the user a line on stderr."""


class Looker(Protocol):
    """The reading half of a Cluster: it is there when no server runs, too."""

    async def get(self, resource: Resource[T], key: Key) -> T: ...

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING, /) -> Listing[T]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """How this user calls tarragon about this cluster, and the namespace that is meant when none is named."""

    program: str
    namespace: str


class Target(Protocol):
    """What is known of the cluster before anything is asked of it, and the doors to it.

    Whatever a door's user lets escape is told in words about that cluster.
    """

    @property
    def namespace(self) -> str:
        """Where jobs are looked for."""
        ...

    @property
    def name(self) -> str:
        """As every change tells it: `local (/home/me/.tarragon)`, `context prod (https://10.0.0.1:6443)`."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded cluster of this home."""
        ...

    @property
    def nodes(self) -> Path | None:
        """The folder in which this machine keeps what its pods have said; None where its pods run elsewhere."""
        ...

    @property
    def prompt(self) -> Prompt: ...

    def changing(self, clock: Clock) -> AbstractAsyncContextManager[Http]:
        """For whoever changes something: the embedded cluster is started if it does not run."""
        ...

    def looking(self) -> AbstractAsyncContextManager[Looker]:
        """For whoever only looks: of an embedded cluster that does not run, what it has stored last."""
        ...

    def watching(self) -> AbstractAsyncContextManager[Cluster]:
        """For whoever waits for changes: it must be running."""
        ...

    async def follow(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Return when the job is over, however often the connection breaks or the embedded cluster dies."""
        ...


def is_store(looker: object) -> bool:
    """Whether it tells what was stored last, by a cluster that does not run."""
    from tarragon.localcluster.registry.client import OnDisk

    return isinstance(looker, OnDisk)
