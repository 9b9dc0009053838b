"""Leader election by a Lease: whoever holds it decides, the others stand by, and nobody compares two machines' clocks.

A standby measures, on its own monotonic clock, how long the record has not changed; a holder measures since it *sent*
the last renewal that went well. So the holder gives up (`deadline`) before anybody else may begin (`duration`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tarragon.base.clock import Clock, within
from tarragon.base.errors import TarragonError
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.port import Cluster
from tarragon.kube.codec import micro_timestamp
from tarragon.kube.core import LEASES
from tarragon.kube.meta import Key, ObjectMeta, Struct

JITTER = 0.2
"""Each pause is up to this much longer than said, so that standbys do not all ask at the same moment."""


class LeaseLost(TarragonError):
    """We do not lead, or not any more. The process that led is to end: it can't know what it has missed."""


class LeaseSpec(Struct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Held(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""


HELD = LEASES.reading(Held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """In seconds; the values are those of every controller of Kubernetes itself."""

    duration: float = 15.0
    """A record that did not change for this long is anybody's."""
    deadline: float = 10.0
    """A holder whose last good renewal was sent this long ago writes nothing any more, and goes."""
    retry: float = 2.0
    """Between two renewals, and between two looks of a standby."""

    @property
    def fault(self) -> str:
        """Why these terms would not keep two from leading at once; empty when they do."""
        if not 0 < self.retry * (1 + JITTER) < self.deadline:
            return f"a renewal every {self.retry:g} s must be well within the deadline of {self.deadline:g} s"
        if not self.deadline < self.duration:
            return f"the deadline of {self.deadline:g} s must be before the end of the lease, {self.duration:g} s"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which Lease, and as whom: the identity must be this process' alone, also across its restarts."""

    key: Key
    identity: str
    terms: Terms = field(default_factory=Terms)


class Lease:
    """`acquire`, then `keep` in a task of its own until it raises; `check` before each write; `release` at the end."""

    def __init__(self, cluster: Cluster, clock: Clock, claim: Claim, jitter: random.Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._claim = claim
        self._terms = claim.terms
        self._jitter = jitter
        self._stored: Held | None = None
        """As last seen; for a holder, as last written."""
        self._changed_at = 0.0
        self._renewed_at: float | None = None
        self._tried: tuple[LeaseSpec, float] | None = None
        self._troubled: list[Callable[[Exception], None]] = []
        self._watching: list[Callable[[str], None]] = []

    @property
    def identity(self) -> str:
        return self._claim.identity

    @property
    def holder(self) -> str:
        """Whoever held it at the last look; empty for nobody."""
        return self._stored.holder if self._stored is not None else ""

    @property
    def seconds_left(self) -> float:
        """Until this holder may not write any more; negative when that is past, or it never held it."""
        if self._renewed_at is None:
            return -math.inf
        return self._renewed_at + self._terms.deadline - self._clock.monotonic()

    @property
    def is_held(self) -> bool:
        return self.seconds_left > 0

    def check(self) -> None:
        """Raises LeaseLost unless we lead at this moment."""
        if self.is_held:
            return
        if self._renewed_at is None:
            raise LeaseLost(f"{self._claim.identity} does not hold the lease {self._claim.key}", why=self._why())
        raise LeaseLost(
            f"{self._claim.identity} has lost the lease {self._claim.key}",
            why=f"the last renewal that went well was {self._terms.deadline - self.seconds_left:.1f} s ago",
        )

    def on_trouble(self, handler: Callable[[Exception], None]) -> None:
        """Call `handler` whenever the server fails; the next attempt follows by itself."""
        self._troubled.append(handler)

    def on_holder(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with each new holder that is seen, ourselves included."""
        self._watching.append(handler)

    async def acquire(self) -> None:
        """Return when we lead."""
        while not await self._attempt(self._take_if_free()):
            await self._clock.sleep(self._pause())

    async def keep(self) -> None:
        """Renew for ever. Raises LeaseLost."""
        while True:
            await self._clock.sleep(self._pause())
            self.check()
            await self._attempt(self._renew())
            self.check()

    async def release(self) -> None:
        """Let the next one begin at once. Afterwards nothing passes `check`."""
        was_held, self._renewed_at = self.is_held, None
        if was_held or self._tried is not None:
            await self._attempt(self._free())

    async def _free(self) -> bool:
        """Whatever was written last, by whoever: also by a call of ours that was broken off."""
        found = await self._cluster.get(HELD, self._claim.key)
        if found.holder != self._claim.identity or self._tried is None:
            return False
        if found.spec.acquire_time != self._tried[0].acquire_time:
            return False  # Another process of our name.
        return await self._patch(found, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()})

    async def _attempt(self, work: Awaitable[bool]) -> bool:
        """Two of them fit into a deadline: one that hangs on a dead connection must not be the last."""
        try:
            return await within(self._clock, self._terms.deadline / 2, work)
        except (Conflict, AlreadyExists):
            return False  # Somebody was faster; the next look will show who.
        except (ApiError, TimeoutError) as error:
            for handler in self._troubled:
                handler(error)
            return False

    async def _take_if_free(self) -> bool:
        try:
            found = await self._cluster.get(HELD, self._claim.key)
        except NotFound:
            return await self._create()
        self._observe(found)
        if self._tried is not None and found.spec == self._tried[0]:
            # The answer to our own write was lost, not the write. When that was too long ago, it is as any other's.
            self._renewed_at = self._tried[1]
            if self.is_held:
                return True
            self._renewed_at = None
        if found.holder and self._clock.monotonic() - self._changed_at < self._duration_of(found):
            return False
        now = self._now()
        return await self._write(
            found,
            LeaseSpec(
                holder_identity=self._claim.identity,
                lease_duration_seconds=math.ceil(self._terms.duration),
                lease_transitions=(found.spec.lease_transitions or 0) + 1,
                acquire_time=now,
                renew_time=now,
            ),
        )

    async def _create(self) -> bool:
        now = self._now()
        spec = LeaseSpec(
            holder_identity=self._claim.identity,
            lease_duration_seconds=math.ceil(self._terms.duration),
            lease_transitions=0,
            acquire_time=now,
            renew_time=now,
        )
        sent = self._clock.monotonic()
        self._tried = spec, sent
        body = {
            "apiVersion": HELD.api_version,
            "kind": HELD.kind,
            "metadata": {"name": self._claim.key.name, "namespace": self._claim.key.namespace},
            "spec": _fields(spec),
        }
        self._observe(await self._cluster.create(HELD, body))
        self._renewed_at = sent
        return self.is_held

    async def _renew(self) -> bool:
        stored = self._stored
        if stored is None:
            return False
        try:
            return await self._write(stored, LeaseSpec(renew_time=self._now()))
        except NotFound:
            return await self._create()
        except Conflict:
            found = await self._cluster.get(HELD, self._claim.key)
        self._observe(found)
        if found.holder != self._claim.identity:
            self._renewed_at = None
            return False
        # Somebody labelled it, or the answer to our last renewal was lost.
        return await self._write(found, LeaseSpec(renew_time=self._now()))

    async def _write(self, found: Held, spec: LeaseSpec) -> bool:
        sent = self._clock.monotonic()
        if spec.holder_identity:
            self._tried = spec, sent
        await self._patch(found, _fields(spec))
        self._renewed_at = sent
        return self.is_held

    async def _patch(self, found: Held, spec: dict[str, Any]) -> bool:
        patch = {
            "metadata": {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid},
            "spec": spec,
        }
        self._observe(await self._cluster.patch(HELD, self._claim.key, patch))
        return True

    def _observe(self, found: Held) -> None:
        before = self._stored
        self._stored = found
        if before is None or found.spec != before.spec:
            self._changed_at = self._clock.monotonic()
        if before is None or found.holder != before.holder:
            for handler in self._watching:
                handler(found.holder)

    def _duration_of(self, found: Held) -> float:
        """As its holder counts; that may be another version, with other terms."""
        return float(found.spec.lease_duration_seconds or self._terms.duration)

    def _pause(self) -> float:
        return self._terms.retry * (1 + JITTER * self._jitter.random())

    def _now(self) -> str:
        """For people only."""
        return micro_timestamp(self._clock.now())

    def _why(self) -> str:
        if self.holder and self.holder != self._claim.identity:
            return f"{self.holder} holds it"
        return ""


def _fields(spec: LeaseSpec) -> dict[str, Any]:
    """Those that are set, as the API names them."""
    return {
        name: value
        for name, value in (
            ("holderIdentity", spec.holder_identity),
            ("leaseDurationSeconds", spec.lease_duration_seconds),
            ("leaseTransitions", spec.lease_transitions),
            ("acquireTime", spec.acquire_time),
            ("renewTime", spec.renew_time),
        )
        if value is not None
    }
