"""The operator's loop: caches fill, changes become keys, keys become reconciles and rounds of admission."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Unavailable
from tarragon.client.leader_election import LeaseLost
from tarragon.client.middleware.write_through import Learning
from tarragon.client.port import Cluster
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import Pod, Service
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.watch_errors import Troubles
from tarragon.operator.manager.startup_order import is_quiet
from tarragon.operator.metrics.meter import Meter, Unmeasured
from tarragon.operator.queue.wakeup import Bell
from tarragon.operator.reconciler.apply import Means
from tarragon.operator.reconciler.recorder import Recorder
from tarragon.operator.reconciler.watchdog import Watchdog
from tarragon.operator.reconciler.worker import BUG, JobId, Worker
from tarragon.operator.scheduler.config.published import Publishing
from tarragon.operator.scheduler.cycle import Admitter, Conduct
from tarragon.plan.config.published import Ways
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.objects.settings import Settings
from tarragon.scheduling.api.rules import DEFAULT_POLICY, Rules
from tarragon.scheduling.policies import POLICIES, Policy, name_of

RULES_SECONDS = 5.0
"""How often it is looked whether the rules of scheduling have changed, where nothing else happens."""
RESYNC_SECONDS = 300.0
"""Every job is looked at this often whatever happens: it covers a wall clock that jumped past a deadline."""
OWNED_PAUSE = 0.02
"""Seconds in which changes of a job's pods gather before it is looked at: they come in bursts, a gang at a time."""
QUIET_PAUSE = 0.001
"""Seconds between two jobs that are looked at for no particular reason: ten thousand at once would hold up the rest."""
ROUND_PAUSE = 0.02
"""Seconds in which changes gather before a round of admission, so that a burst of a thousand costs one."""

Owned = Pod | Service | PodGroup
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an operator runs; everything that is not the cluster or the clock."""

    settings: Settings = field(default_factory=Settings)
    policy: Policy = POLICIES[DEFAULT_POLICY]
    rules: Callable[[], Rules] = Rules
    """Asked once a round: they may be in a file that people edit."""
    published_in: str = ""
    """The namespace in which others can read the policy and the rules; empty where nobody needs them."""
    frameworks: Sequence[Framework] = FRAMEWORKS
    seed: int | None = None
    """For the jitter of back-offs."""
    meter: Meter = field(default_factory=Unmeasured)


async def run(cluster: Cluster, clock: Clock, options: Options = Options()) -> None:
    """For ever, until cancelled."""
    await Operator(cluster, clock, options).run()


class Operator:
    """Whoever leads looks at each job when something has changed about it, and makes the rounds of admission."""

    def __init__(self, cluster: Cluster, clock: Clock, options: Options) -> None:
        self._clock = clock
        jitter = random.Random(options.seed)
        self._world = World(cluster, options.frameworks, clock, options.settings, jitter)
        writing = Learning(cluster, self._world)
        means = Means(cluster=writing, clock=clock, recorder=Recorder(cluster, clock))
        self._worker = Worker(means, self._world, options.meter)
        conduct = Conduct(rules=options.rules, meter=options.meter)
        self._rules = options.rules
        self._policy = name_of(options.policy)
        self._publishing = Publishing(cluster, clock, options.published_in) if options.published_in else None
        self._admitter = Admitter(writing, clock, self._world, options.policy, conduct)
        self._round = Bell(clock)
        self._stopping = asyncio.Event()
        self._is_leading = False
        self._round_watch = Watchdog(clock)
        self._meter = options.meter
        self._meter.attach(self._world, self._worker.queue)
        self._subscribe()

    async def run(self) -> None:
        """Alone on its cluster, with nobody to agree with about who leads."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follow())
            await self.synced()
            await self.lead()

    async def follow(self) -> None:
        """Keep the caches up to date, for ever. Decides and writes nothing."""
        troubles = Troubles(self._clock, self._world.is_to_be_expected)
        async with asyncio.TaskGroup() as tasks:
            for cache in self._world.caches:
                cache.on_trouble(troubles.tell)
                cache.on_recovery(troubles.tell_end)
                tasks.create_task(cache.run())

    async def synced(self) -> None:
        """Return when all caches are filled."""
        await self._world.synced()

    @property
    def missing(self) -> Sequence[str]:
        """The kinds whose caches are not filled yet."""
        return self._world.missing

    async def lead(self) -> None:
        """Decide and write, until `stop`: then end what has begun. Raises LeaseLost when somebody else leads."""
        self._is_leading = True
        self._look_at_all(self._world.jobs)
        self._round.ring()
        self._worker.start()
        self._meter.leads(True)
        try:
            async with asyncio.TaskGroup() as tasks:
                resync = tasks.create_task(self._resync())
                ruling = tasks.create_task(self._follow_rules())
                tasks.create_task(self._worker.run(tasks))
                tasks.create_task(self._rounds())
                await self._stopping.wait()
                resync.cancel()
                ruling.cancel()
        finally:
            self._is_leading = False
            self._meter.leads(False)

    @property
    def is_leading(self) -> bool:
        """Whether `lead` is at work: it decides, or ends what it has begun."""
        return self._is_leading

    def leave(self, left_to: Mapping[str, str]) -> None:
        """By kind, who else keeps its jobs from now on; nobody means that they are ours."""
        kinds = {*left_to, *self._world.settings.left_to}
        self._world.settings = replace(self._world.settings, left_to=left_to)
        self._look_at_all(kinds)

    @property
    def stuck(self) -> Sequence[str]:
        """What has not moved for so long that only a new process helps. A standby has nothing to move."""
        if not self._is_leading:
            return []
        return [*self._worker.stuck(), *self._round_watch.hanging()]

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        self._worker.stop()
        self._round.ring_for_ever()

    def _subscribe(self) -> None:
        for kind, cache in self._world.jobs.items():
            cache.subscribe(self._job_handler(kind))
        self._world.pods.subscribe(self._owned_changed)
        self._world.services.subscribe(self._owned_changed)
        for groups in self._world.pod_groups:
            groups.subscribe(self._owned_changed)
        self._world.verified.subscribe(lambda job: self._enqueue(job, 0.0))
        # One that does not come leaves its place to others.
        self._world.unmade.subscribe(lambda _job: self._round.ring())
        for cache in (self._world.nodes, *self._world.optional):
            cache.subscribe(lambda _key, _old, _new: self._round.ring())
        # Nodes that can't be read for too long are a reason to place nothing any more.
        self._world.nodes.on_trouble(lambda _: self._round.ring())

    def _job_handler(self, kind: str) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def changed(key: Key, _: CustomObject | None, __: CustomObject | None) -> None:
            self._enqueue((kind, key), 0.0)
            self._round.ring()

        return changed

    def _owned_changed(self, _: Key, old: Owned | None, new: Owned | None) -> None:
        seen = new if new is not None else old
        job = self._world.job_of(seen.metadata) if seen is not None else None
        if job is not None:
            self._enqueue(job, OWNED_PAUSE)
        if isinstance(seen, Pod):
            # Any pod that comes or goes changes what is free, whoever made it.
            self._round.ring()

    def _enqueue(self, job: JobId, delay: float) -> None:
        if self._is_leading:  # Whoever begins to lead looks at all jobs anyway.
            self._worker.add(job, delay)

    async def _rounds(self) -> None:
        pause: float | None = None
        while True:
            await self._round.heard(pause)
            if self._stopping.is_set():
                return
            await self._clock.sleep(ROUND_PAUSE)
            self._round.silence()
            began, failure = self._clock.monotonic(), ""
            try:
                with self._round_watch.work("a round of admission"):
                    pause = await self._admitter.round()
            except ApiError as error:
                failure = type(error).__name__
                log.warning("admission", error=str(error))
                pause = max(1.0, error.retry_after) if not isinstance(error, Unavailable) else 1.0
            except LeaseLost:
                raise
            except Exception:
                failure = BUG
                log.exception("a round of admission met a bug")
                pause = 10.0
            self._meter.decided(self._clock.monotonic() - began, failure)

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(RESYNC_SECONDS)
            self._look_at_all(self._world.jobs)
            self._round.ring()

    async def _follow_rules(self) -> None:
        before = self._rules()
        while True:
            if self._publishing is not None:
                await self._publishing.tell(Ways(policy=self._policy, rules=before))
            await self._clock.sleep(RULES_SECONDS)
            before, earlier = self._rules(), before
            if before != earlier:
                self._round.ring()

    def _look_at_all(self, kinds: Iterable[str]) -> None:
        """Soon at those that have changed while nobody led, then at one after the other: news come in between."""
        later = 0.0
        for kind in kinds:
            cache = self._world.jobs.get(kind)
            for key, job in cache.objects.items() if cache is not None else ():
                quiet = is_quiet(job, self._world.pods_of(job))
                later += QUIET_PAUSE if quiet else 0.0
                self._enqueue((kind, key), later if quiet else 0.0)
