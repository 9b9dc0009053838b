from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import NotFound, unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.leader_election import (
    JITTER,
    TYPED_LEASES,
    LeaderElectionConfig,
    LeaderElector,
    Lease,
    LeaseLock,
    LeaseLost,
)
from tarragon.client.middleware.fenced import FencedClient
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tests.client.hasty import HastyClock
from tests.client.test_retries import busy
from tests.localcluster.apiserver.scripted_server import in_turn, says, serving
from tests.localcluster.controllers.world import EmbeddedCluster, a_world

KEY = Key("default", "tarragon")
LOOK = 2.0 * (1 + JITTER)
"""In that many seconds everybody has looked, or renewed, at least once."""


class Wire:
    """The way to the API: a test cuts it, or loses what comes back on it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._under_way = 0
        self._moved = asyncio.Event()
        self.is_cut = False
        self.hangs = False
        self.loses_answers = False
        self.writes = 0

    async def get(self, *what: Any) -> Any:
        return await self._call(lambda: self._client.get(*what))

    async def create(self, *what: Any) -> Any:
        self.writes += 1
        return await self._call(lambda: self._client.create(*what), writes=True)

    async def patch(self, *what: Any, **more: Any) -> Any:
        self.writes += 1
        return await self._call(lambda: self._client.patch(*what, **more), writes=True)

    async def _call(self, call: Callable[[], Any], *, writes: bool = False) -> Any:
        if self.is_cut:
            raise unavailable("the wire is cut")
        if self.hangs:
            await asyncio.Event().wait()
        self._under_way += 1
        try:
            answer = await call()
        finally:
            self._under_way -= 1
            self._moved.set()
        if writes and self.loses_answers:
            raise unavailable("the answer is lost")
        return answer

    async def quiet(self) -> None:
        """Return when nothing is under way, and nothing comes of what was."""
        while True:
            await turns()
            if not self._under_way:
                return
            self._moved.clear()
            await self._moved.wait()


async def turns() -> None:
    for _ in range(20):
        await FakeClock().sleep(0)


class Machine:
    """One process with a claim, its clock and its wire."""

    def __init__(self, world: EmbeddedCluster, name: str) -> None:
        self.clock = FakeClock()
        self.wire = Wire(world.client)
        cluster: Any = self.wire
        self.cluster = cluster
        self.lease = LeaderElector(cluster, self.clock, LeaseLock(key=KEY, identity=name), random.Random(1))
        self.task: asyncio.Task[None] | None = None

    def leads(self) -> bool:
        return self.lease.is_leader

    async def starts(self) -> None:
        self.task = asyncio.create_task(self._live())
        await self.wire.quiet()

    async def _live(self) -> None:
        await self.lease.acquire()
        await self.lease.renew()

    async def goes(self, seconds: float) -> None:
        """In steps, as the world does: of whatever comes due, everything has happened before the next step."""
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            await self.wire.quiet()

    async def ends(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError, LeaseLost):
                await self.task


class Place:
    def __init__(self, world: EmbeddedCluster) -> None:
        self.world = world
        self.machines: list[Machine] = []

    def machine(self, name: str) -> Machine:
        self.machines.append(Machine(self.world, name))
        return self.machines[-1]

    async def pass_time(self, seconds: float) -> None:
        """On all of them alike."""
        for _ in range(round(seconds / 0.1)):
            for machine in self.machines:
                machine.clock.advance(0.1)
            for machine in self.machines:
                await machine.wire.quiet()

    async def stored(self) -> Lease:
        return await self.world.client.get(TYPED_LEASES, KEY)

    async def edit(self, **spec: Any) -> None:
        await self.world.client.patch(TYPED_LEASES, KEY, {"spec": spec})


@asynccontextmanager
async def a_place(folder: Path) -> AsyncIterator[Place]:
    async with a_world(folder) as world:
        place = Place(world)
        try:
            yield place
        finally:
            for machine in place.machines:
                await machine.ends()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with a_place(tmp_path) as place:
        yield place


async def test_a_lease_that_nobody_has_is_taken_at_once_and_says_by_whom(place: Place) -> None:
    a = place.machine("a")
    seen: list[str] = []
    a.lease.on_new_leader(seen.append)
    await a.starts()

    stored = (await place.stored()).spec
    assert a.leads()
    assert (stored.holder_identity, stored.lease_duration_seconds, stored.lease_transitions) == ("a", 15, 0)
    assert seen == ["a"]


async def test_a_standby_waits_for_as_long_as_the_holder_renews(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    await place.pass_time(120)

    assert a.leads()
    assert not b.leads()
    assert b.lease.holder == "a"
    assert b.wire.writes == 0


async def test_a_standby_takes_over_within_the_leases_time_of_the_last_renewal_and_counts_it(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    await place.pass_time(20)
    await a.ends()
    await b.goes(15 - LOOK)
    assert not b.leads()

    await b.goes(2 * LOOK)
    stored = (await place.stored()).spec
    assert b.leads()
    assert (stored.holder_identity, stored.lease_transitions) == ("b", 1)


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_nobody_believes_the_clock_of_another_machine(place: Place, renewed: str) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await a.ends()
    await place.edit(renewTime=renewed)
    await b.starts()

    await b.goes(14.9)
    assert not b.leads()
    await b.goes(LOOK + 0.2)
    assert b.leads()


async def test_a_lease_that_was_given_back_is_taken_at_the_next_look(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    await a.ends()
    await a.lease.release()
    assert not a.leads()
    assert (await place.stored()).holder == ""

    await b.goes(LOOK)
    assert b.leads()


async def test_of_many_who_want_a_free_lease_one_gets_it(place: Place) -> None:
    machines = [place.machine(name) for name in "abcdef"]
    await asyncio.gather(*(machine.starts() for machine in machines))
    assert sum(machine.leads() for machine in machines) == 1

    (first,) = [machine for machine in machines if machine.leads()]
    await first.ends()
    await first.lease.release()
    rest = [machine for machine in machines if machine is not first]
    await asyncio.gather(*(machine.goes(LOOK) for machine in rest))
    assert sum(machine.leads() for machine in rest) == 1


async def test_a_holder_that_reaches_nobody_gives_up_before_anybody_else_may_begin(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    troubles: list[Exception] = []
    a.lease.on_error(troubles.append)
    a.wire.is_cut = True

    await place.pass_time(10.1)
    assert not a.leads()
    assert not b.leads()
    await place.pass_time(LOOK)
    assert a.task is not None
    with pytest.raises(LeaseLost, match="a has lost the lease default/tarragon"):
        await a.task
    assert troubles
    await place.pass_time(5 + LOOK)
    assert b.leads()


async def test_a_call_that_hangs_is_not_the_last_that_is_tried(place: Place) -> None:
    a = place.machine("a")
    await a.starts()
    a.wire.hangs = True
    await a.goes(LOOK + 0.1)
    a.wire.hangs = False
    await a.goes(5 + LOOK)

    assert a.leads()
    await a.goes(60)
    assert a.leads()


async def test_a_renewal_whose_answer_is_lost_is_a_renewal(place: Place) -> None:
    a = place.machine("a")
    await a.starts()
    a.wire.loses_answers = True
    await a.goes(LOOK)
    a.wire.loses_answers = False
    await a.goes(60)

    assert a.leads()
    assert (await place.stored()).spec.lease_transitions == 0


async def test_who_took_a_lease_and_hears_of_it_too_late_takes_it_again_as_any_other(place: Place) -> None:
    """A server that dies after the write and is away for a whole deadline: with nobody else, nobody would lead."""
    a = place.machine("a")
    a.wire.loses_answers = True
    await a.starts()
    a.wire.is_cut = True
    await a.goes(10 + LOOK)
    a.wire.is_cut = a.wire.loses_answers = False
    await a.goes(LOOK)
    assert not a.leads()

    await a.goes(15 + LOOK)
    assert a.leads()


async def test_who_took_a_lease_and_did_not_hear_the_answer_leads_at_the_next_look(place: Place) -> None:
    a = place.machine("a")
    a.wire.loses_answers = True
    await a.starts()
    assert not a.leads()
    a.wire.loses_answers = False

    await a.goes(LOOK)
    assert a.leads()


async def test_what_others_write_to_the_lease_loses_it_only_if_it_names_another_holder(place: Place) -> None:
    a = place.machine("a")
    await a.starts()
    await place.world.client.patch(TYPED_LEASES, KEY, {"metadata": {"labels": {"team": "ml"}}})
    await a.goes(30)
    assert a.leads()

    await place.edit(holderIdentity="b")
    await a.goes(LOOK)
    assert not a.leads()
    assert (await place.stored()).holder == "b"
    assert a.task is not None
    with pytest.raises(LeaseLost, match="b holds it"):
        await a.task


async def test_a_lease_that_somebody_deleted_is_made_again_by_its_holder(place: Place) -> None:
    a = place.machine("a")
    await a.starts()
    await place.world.client.delete(TYPED_LEASES, KEY)
    with pytest.raises(NotFound):
        await place.stored()

    await a.goes(LOOK)
    assert a.leads()
    assert (await place.stored()).holder == "a"


async def test_a_name_that_another_one_uses_too_is_no_reason_to_lead_beside_it(place: Place) -> None:
    a, twin = place.machine("a"), place.machine("a")
    await a.starts()
    await twin.starts()
    await place.pass_time(60)

    assert a.leads()
    assert not twin.leads()


async def test_a_holder_that_was_frozen_past_its_lease_writes_nothing_when_it_thaws(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    await b.goes(16 + LOOK)
    assert b.leads()
    before, written = await place.stored(), a.wire.writes
    fenced = FencedClient(a.cluster, a.lease)

    a.clock.advance(16 + LOOK)  # In one go, as for a process that was stopped.
    with pytest.raises(LeaseLost, match="the last successful renewal was"):
        await fenced.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}})
    await a.wire.quiet()
    assert a.wire.writes == written
    assert await place.stored() == before
    assert a.task is not None
    with pytest.raises(LeaseLost):
        await a.task


async def test_a_standby_reads_and_does_not_write(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    await a.starts()
    await b.starts()
    leader, standby = FencedClient(a.cluster, a.lease), FencedClient(b.cluster, b.lease)
    thing = {"metadata": {"name": "c", "namespace": "default"}}
    made = await leader.create(CONFIG_MAPS, thing)

    assert await standby.get(CONFIG_MAPS, made.metadata.key) == made
    with pytest.raises(LeaseLost, match="a holds it"):
        await standby.patch(CONFIG_MAPS, made.metadata.key, {"data": {"a": "b"}})
    with pytest.raises(LeaseLost, match="b does not hold the lease"):
        await standby.delete(CONFIG_MAPS, made.metadata.key)


async def test_a_write_that_a_busy_server_put_off_until_after_the_lease_is_not_sent_again() -> None:
    clock = HastyClock()

    def check() -> None:
        if clock.monotonic() > 10:
            raise LeaseLost("a has lost the lease")

    asked = in_turn(busy("4"), busy("8"), says({"metadata": {"name": "c"}}))
    async with serving(asked) as script, HttpClient(RestConfig(url=script.url), random.Random(1), clock) as http:
        http.check_before_writes(check)
        with pytest.raises(LeaseLost):
            await http.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}})
        assert len(script.asked) == 2
        await http.get(CONFIG_MAPS, Key("default", "c"))


async def test_a_write_is_not_sent_if_the_lease_ended_while_it_was_getting_its_connection() -> None:
    asked: list[str] = []

    def check() -> None:
        asked.append("may I?")
        if len(asked) > 1:
            raise LeaseLost("a has lost the lease")

    async with serving(in_turn(says({}))) as script, HttpClient(RestConfig(url=script.url), random.Random(1)) as http:
        http.check_before_writes(check)
        with pytest.raises(LeaseLost):
            await http.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}})
        assert script.asked == []


async def test_a_lease_that_was_taken_by_a_call_that_was_broken_off_is_given_back_too(place: Place) -> None:
    a, b = place.machine("a"), place.machine("b")
    a.wire.loses_answers = True
    await a.starts()
    await a.ends()
    assert (await place.stored()).holder == "a"
    a.wire.loses_answers = False

    await a.lease.release()
    assert (await place.stored()).holder == ""
    await b.starts()
    assert b.leads()
    await a.lease.release()
    assert (await place.stored()).holder == "b"


async def test_who_has_given_the_lease_back_does_not_write(place: Place) -> None:
    a = place.machine("a")
    await a.starts()
    await a.ends()
    await a.lease.release()

    with pytest.raises(LeaseLost):
        a.lease.check()


@pytest.mark.parametrize(
    "terms",
    [
        LeaderElectionConfig(renew_deadline=15),
        LeaderElectionConfig(retry_period=10),
        LeaderElectionConfig(retry_period=0),
        LeaderElectionConfig(lease_duration=3, renew_deadline=2.1, retry_period=2),
    ],
)
def test_terms_under_which_two_might_lead_at_once_are_a_fault(terms: LeaderElectionConfig) -> None:
    assert terms.validation_error
    assert not LeaderElectionConfig().validation_error
