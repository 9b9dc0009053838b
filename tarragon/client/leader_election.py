"""Leader election by a Lease: the holder leads, the others stand by. Clocks of different machines are never compared.

A standby measures on its own monotonic clock how long the record has not changed. The leader measures the time since it
*sent* its last successful renewal. Therefore the leader stops (`renew_deadline`) before another process takes over
(`lease_duration`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tarragon.base.clock import Clock, with_timeout
from tarragon.base.errors import TarragonError
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from tarragon.client.port import Client
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import LEASES
from tarragon.kube.meta import Key, ObjectMeta, PartialObject

JITTER = 0.2
"""The maximum fraction by which pauses are prolonged, so that standbys do not all ask at the same moment."""


class LeaseLost(TarragonError):
    """The process is not, or no longer, the leader. A former leader must exit: it can't know what it has missed."""


class LeaseSpec(PartialObject, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""


TYPED_LEASES = LEASES.with_model(Lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfig:
    """The timing of an election in seconds. The defaults are those of the Kubernetes controllers."""

    lease_duration: float = 15.0
    """A lease that did not change for this long may be taken over."""
    renew_deadline: float = 10.0
    """A leader that sent its last successful renewal this long ago stops writing and exits."""
    retry_period: float = 2.0
    """The time between two renewals, and between two checks by a standby."""

    @property
    def validation_error(self) -> str:
        """Why these terms would allow two leaders at once; empty if they are safe."""
        if not 0 < self.retry_period * (1 + JITTER) < self.renew_deadline:
            return (
                f"the retry period of {self.retry_period:g} s must be well below the renew "
                f"deadline of {self.renew_deadline:g} s"
            )
        if not self.renew_deadline < self.lease_duration:
            return (
                f"the renew deadline of {self.renew_deadline:g} s must be below the lease "
                f"duration of {self.lease_duration:g} s"
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLock:
    """The Lease to acquire and the identity to use, which must be unique to this process, even across restarts."""

    key: Key
    identity: str
    config: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)


class LeaderElector:
    """A candidate for leadership.

    Call `acquire`, then `renew` in a task of its own until it raises, `check` before each write, and `release` at the
    end.
    """

    def __init__(self, cluster: Client, clock: Clock, claim: LeaseLock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._claim = claim
        self._terms = claim.config
        self._jitter = jitter
        self._stored: Lease | None = None
        """The lease as last seen or, by the leader, as last written."""
        self._changed_at = 0.0
        self._renewed_at: float | None = None
        self._last_attempt: tuple[LeaseSpec, float] | None = None
        self.is_answered = False
        """Whether the server has told yet who holds the lease."""
        self.refusal: ApiError | None = None
        """Why no attempt can succeed before somebody changes the cluster. A server that does not respond keeps it."""
        self._on_trouble: list[Callable[[Exception], None]] = []
        self._on_refusal: list[Callable[[ApiError], None]] = []
        self._on_holder: list[Callable[[str], None]] = []

    @property
    def key(self) -> Key:
        return self._claim.key

    @property
    def identity(self) -> str:
        return self._claim.identity

    @property
    def holder(self) -> str:
        """The holder when the lease was last seen; empty if there was none."""
        return self._stored.holder if self._stored is not None else ""

    @property
    def seconds_left(self) -> float:
        """The seconds for which this process may still write; negative if it may not, or never held the lease."""
        if self._renewed_at is None:
            return -math.inf
        return self._renewed_at + self._terms.renew_deadline - self._clock.monotonic()

    @property
    def is_leader(self) -> bool:
        return self.seconds_left > 0

    def check(self) -> None:
        """Raise LeaseLost unless this process is the leader now."""
        if self.is_leader:
            return
        if self._renewed_at is None:
            raise LeaseLost(f"{self._claim.identity} does not hold the lease {self._claim.key}", why=self._why())
        raise LeaseLost(
            f"{self._claim.identity} has lost the lease {self._claim.key}",
            why=f"the last successful renewal was {self._terms.renew_deadline - self.seconds_left:.1f} s ago",
        )

    def on_error(self, handler: Callable[[Exception], None]) -> None:
        """Call `handler` whenever the server fails. The next attempt follows automatically."""
        self._on_trouble.append(handler)

    def on_refusal(self, handler: Callable[[ApiError], None]) -> None:
        """Call `handler` with each new `refusal`, instead of the handlers of `on_error`. Attempts go on."""
        self._on_refusal.append(handler)

    def on_new_leader(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with each new holder that is seen, including this process."""
        self._on_holder.append(handler)

    async def acquire(self) -> None:
        """Return once this process is the leader."""
        while not await self._attempt(self._take_if_free()):
            await self._clock.sleep(self._pause())

    async def renew(self) -> None:
        """Renew the lease until it is lost. Raises LeaseLost."""
        while True:
            await self._clock.sleep(self._pause())
            self.check()
            await self._attempt(self._renew())
            self.check()

    async def release(self) -> None:
        """Give up the lease, so that a standby can take over at once. Afterwards `check` always raises."""
        was_held, self._renewed_at = self.is_leader, None
        if was_held or self._last_attempt is not None:
            await self._attempt(self._free())

    async def _free(self) -> bool:
        """Clear the holder if it is this process. Reads the lease first: a cancelled write may have succeeded."""
        found = await self._cluster.get(TYPED_LEASES, self._claim.key)
        if found.holder != self._claim.identity or self._last_attempt is None:
            return False
        if found.spec.acquire_time != self._last_attempt[0].acquire_time:
            return False  # Another process with the same identity.
        return await self._patch(found, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()})

    async def _attempt(self, work: Awaitable[bool]) -> bool:
        """Run one attempt, for at most half the deadline: one that hangs on a dead connection must not be the last."""
        try:
            succeeded = await with_timeout(self._clock, self._terms.renew_deadline / 2, work)
        except (Conflict, AlreadyExists):
            succeeded = False  # Another process was faster; the next attempt shows which.
        except (ApiError, TimeoutError) as error:
            self._failed(error)
            return False
        self.is_answered, self.refusal = True, None
        return succeeded

    def _failed(self, error: ApiError | TimeoutError) -> None:
        if isinstance(error, TimeoutError) or not _is_refusal(error):
            for handler in self._on_trouble:
                handler(error)
            return
        is_new = self.refusal is None or str(error) != str(self.refusal)
        self.refusal = error
        if is_new:
            for refused in self._on_refusal:
                refused(error)

    async def _take_if_free(self) -> bool:
        try:
            found = await self._cluster.get(TYPED_LEASES, self._claim.key)
        except NotFound:
            return await self._create()
        self._observe(found)
        if self._last_attempt is not None and found.spec == self._last_attempt[0]:
            # The response to this process' own write was lost, not the write. If too old, treat it like any other's.
            self._renewed_at = self._last_attempt[1]
            if self.is_leader:
                return True
            self._renewed_at = None
        if found.holder and self._clock.monotonic() - self._changed_at < self._duration_of(found):
            return False
        now = self._now()
        return await self._write(
            found,
            LeaseSpec(
                holder_identity=self._claim.identity,
                lease_duration_seconds=math.ceil(self._terms.lease_duration),
                lease_transitions=(found.spec.lease_transitions or 0) + 1,
                acquire_time=now,
                renew_time=now,
            ),
        )

    async def _create(self) -> bool:
        now = self._now()
        spec = LeaseSpec(
            holder_identity=self._claim.identity,
            lease_duration_seconds=math.ceil(self._terms.lease_duration),
            lease_transitions=0,
            acquire_time=now,
            renew_time=now,
        )
        sent = self._clock.monotonic()
        self._last_attempt = spec, sent
        body = {
            "apiVersion": TYPED_LEASES.api_version,
            "kind": TYPED_LEASES.kind,
            "metadata": {"name": self._claim.key.name, "namespace": self._claim.key.namespace},
            "spec": _fields(spec),
        }
        self._observe(await self._cluster.create(TYPED_LEASES, body))
        self._renewed_at = sent
        return self.is_leader

    async def _renew(self) -> bool:
        stored = self._stored
        if stored is None:
            return False
        try:
            return await self._write(stored, LeaseSpec(renew_time=self._now()))
        except NotFound:
            return await self._create()
        except Conflict:
            found = await self._cluster.get(TYPED_LEASES, self._claim.key)
        self._observe(found)
        if found.holder != self._claim.identity:
            self._renewed_at = None
            return False
        # The lease was modified otherwise, such as labelled, or the response to the last renewal was lost.
        return await self._write(found, LeaseSpec(renew_time=self._now()))

    async def _write(self, found: Lease, spec: LeaseSpec) -> bool:
        sent = self._clock.monotonic()
        if spec.holder_identity:
            self._last_attempt = spec, sent
        await self._patch(found, _fields(spec))
        self._renewed_at = sent
        return self.is_leader

    async def _patch(self, found: Lease, spec: dict[str, Any]) -> bool:
        patch = {
            "metadata": {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid},
            "spec": spec,
        }
        self._observe(await self._cluster.patch(TYPED_LEASES, self._claim.key, patch))
        return True

    def _observe(self, found: Lease) -> None:
        before = self._stored
        self._stored = found
        if before is None or found.spec != before.spec:
            self._changed_at = self._clock.monotonic()
        if before is None or found.holder != before.holder:
            for handler in self._on_holder:
                handler(found.holder)

    def _duration_of(self, found: Lease) -> float:
        """The duration by the holder's own terms, which may differ from ours."""
        return float(found.spec.lease_duration_seconds or self._terms.lease_duration)

    def _pause(self) -> float:
        return self._terms.retry_period * (1 + JITTER * self._jitter.random())

    def _now(self) -> str:
        """The wall time for the record. No process decides on it."""
        return format_micro_time(self._clock.now())

    def _why(self) -> str:
        if self.holder and self.holder != self._claim.identity:
            return f"{self.holder} holds it"
        return ""


def is_missing_namespace(error: ApiError) -> bool:
    """Whether a create failed because there is no such namespace."""
    return isinstance(error, NotFound) and (error.status.get("details") or {}).get("kind") == "namespaces"


def _is_refusal(error: ApiError) -> bool:
    return isinstance(error, Forbidden) or is_missing_namespace(error)


def _fields(spec: LeaseSpec) -> dict[str, Any]:
    """The fields that are set, by their API names."""
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
