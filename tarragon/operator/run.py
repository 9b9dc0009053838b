"""The operator's loop: caches fill, changes become keys, keys become reconciles and rounds of admission."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from structlog.contextvars import bind_contextvars

from tarragon.base.clock import Clock
from tarragon.cluster.errors import ApiError, Conflict, Unavailable
from tarragon.cluster.learning import Learning
from tarragon.cluster.lease import LeaseLost
from tarragon.cluster.port import Cluster
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import Pod, Service
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.admit import Admitter, Conduct
from tarragon.operator.apply import Means
from tarragon.operator.gather import World
from tarragon.operator.meter import Meter, Unmeasured
from tarragon.operator.publishing import Publishing
from tarragon.operator.quiet import is_quiet
from tarragon.operator.reconcile import reconcile
from tarragon.operator.recorder import Recorder
from tarragon.operator.troubles import Troubles
from tarragon.operator.watchdog import LONGEST_PAUSE, Watchdog
from tarragon.operator.workqueue import WorkQueue
from tarragon.plan.groupkinds import PodGroup
from tarragon.plan.published import Ways
from tarragon.plan.step import Settings
from tarragon.scheduling.names import DEFAULT
from tarragon.scheduling.policies import POLICIES, Policy, name_of
from tarragon.scheduling.rules import Rules

RECONCILES_AT_ONCE = 16
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

BUG = "Bug"
"""What an error is counted as that is none of the API server's."""

JobId = tuple[str, Key]
Owned = Pod | Service | PodGroup
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an operator runs; everything that is not the cluster or the clock."""

    settings: Settings = field(default_factory=Settings)
    policy: Policy = POLICIES[DEFAULT]
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
    """One task takes due keys from the queue, each reconcile is a task of its own; one more task makes the rounds."""

    def __init__(self, cluster: Cluster, clock: Clock, options: Options) -> None:
        self._clock = clock
        jitter = random.Random(options.seed)
        self._world = World(cluster, options.frameworks, clock, options.settings, jitter)
        writing = Learning(cluster, self._world)
        self._means = Means(cluster=writing, clock=clock, recorder=Recorder(cluster, clock))
        conduct = Conduct(rules=options.rules, meter=options.meter)
        self._rules = options.rules
        self._policy = name_of(options.policy)
        self._publishing = Publishing(cluster, clock, options.published_in) if options.published_in else None
        self._admitter = Admitter(writing, clock, self._world, options.policy, conduct)
        self._queue: WorkQueue[JobId] = WorkQueue()
        self._work = asyncio.Event()
        self._round = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_leading = False
        self._work_watch = Watchdog(clock)
        self._round_watch = Watchdog(clock)
        self._meter = options.meter
        self._meter.attach(self._world, self._queue)
        self._owners = {(framework.resource.group, framework.kind) for framework in options.frameworks}
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
        self._round.set()
        self._work_watch.start()
        self._meter.leads(True)
        try:
            async with asyncio.TaskGroup() as tasks:
                resync = tasks.create_task(self._resync())
                ruling = tasks.create_task(self._follow_rules())
                tasks.create_task(self._dispatch(tasks))
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
        found = [*self._work_watch.hanging(), *self._round_watch.hanging()]
        idle = self._work_watch.idle_since(self._queue.next_due())
        if self._work_watch.at_work < RECONCILES_AT_ONCE and idle > LONGEST_PAUSE:
            found.append(f"{len(self._queue)} jobs are queued and none was taken for {idle:.0f} s")
        return found

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        self._work.set()
        self._round.set()

    def _subscribe(self) -> None:
        for kind, cache in self._world.jobs.items():
            cache.subscribe(self._job_handler(kind))
        self._world.pods.subscribe(self._owned_changed)
        self._world.services.subscribe(self._owned_changed)
        for groups in self._world.pod_groups:
            groups.subscribe(self._owned_changed)
        # One that does not come leaves its place to others.
        self._world.unmade.subscribe(lambda _job: self._round.set())
        for cache in (self._world.nodes, *self._world.optional):
            cache.subscribe(lambda _key, _old, _new: self._round.set())
        # Nodes that can't be read for too long are a reason to place nothing any more.
        self._world.nodes.on_trouble(lambda _: self._round.set())

    def _job_handler(self, kind: str) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def changed(key: Key, _: CustomObject | None, __: CustomObject | None) -> None:
            self._enqueue((kind, key), 0.0)
            self._round.set()

        return changed

    def _owned_changed(self, key: Key, old: Owned | None, new: Owned | None) -> None:
        seen = new if new is not None else old
        owner = seen.metadata.controller if seen is not None else None
        if owner is not None and (owner.api_version.partition("/")[0], owner.kind) in self._owners:
            self._enqueue((owner.kind, Key(key.namespace, owner.name)), OWNED_PAUSE)
        if isinstance(seen, Pod):
            # Any pod that comes or goes changes what is free, whoever made it.
            self._round.set()

    def _enqueue(self, job: JobId, delay: float) -> None:
        if not self._is_leading:
            return  # Whoever begins to lead looks at all jobs anyway.
        self._queue.add(job, self._clock.monotonic() + delay)
        self._work.set()

    async def _dispatch(self, tasks: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(RECONCILES_AT_ONCE)
        while True:
            await slots.acquire()
            job = await self._next()
            if job is None:
                return
            tasks.create_task(self._work_on(job, slots.release))

    async def _next(self) -> JobId | None:
        """None when nothing more is to begin."""
        while not self._stopping.is_set():
            self._work.clear()
            job = self._queue.take(self._clock.monotonic())
            if job is not None:
                return job
            due = self._queue.next_due()
            await self._until(self._work, None if due is None else due - self._clock.monotonic())
        return None

    async def _work_on(self, job: JobId, release: Callable[[], None]) -> None:
        kind, key = job
        began, failure = self._clock.monotonic(), ""
        self._name_in_logs(kind, key)
        try:
            with self._work_watch.work(f"reconcile of {kind} {key}"):
                wake_at = await reconcile(self._means, self._world, kind, key)
        except Conflict as error:
            # The cache is behind: what it will show next decides anew.
            failure = type(error).__name__
            self._retry(job, error)
        except ApiError as error:
            failure = type(error).__name__
            log.warning("reconcile", error=str(error))
            self._retry(job, error)
        except LeaseLost:
            raise
        except Exception:
            # The one place that catches everything: one job that meets a bug must not stop all the others.
            failure = BUG
            log.exception("reconcile met a bug")
            self._retry(job, None)
        else:
            self._queue.done(job)
            if wake_at is not None:
                self._enqueue(job, max(0.0, (wake_at - self._clock.now()).total_seconds()))
        finally:
            self._meter.reconciled(kind, self._clock.monotonic() - began, failure)
            release()
            self._work.set()

    def _name_in_logs(self, kind: str, key: Key) -> None:
        """On every line of this task, whoever writes it."""
        job = self._world.jobs[kind].objects.get(key)
        uid = job.metadata.uid if job is not None else ""
        bind_contextvars(kind=kind, namespace=key.namespace, job=key.name, uid=uid)

    def _retry(self, job: JobId, error: ApiError | None) -> None:
        self._queue.failed(job, self._clock.monotonic(), at_least=error.retry_after if error else 0.0)

    async def _rounds(self) -> None:
        pause: float | None = None
        while True:
            await self._until(self._round, pause)
            if self._stopping.is_set():
                return
            await self._clock.sleep(ROUND_PAUSE)
            self._round.clear()
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
            self._round.set()

    async def _follow_rules(self) -> None:
        before = self._rules()
        while True:
            if self._publishing is not None:
                await self._publishing.tell(Ways(policy=self._policy, rules=before))
            await self._clock.sleep(RULES_SECONDS)
            before, earlier = self._rules(), before
            if before != earlier:
                self._round.set()

    def _look_at_all(self, kinds: Iterable[str]) -> None:
        """Soon at those that have changed while nobody led, then at one after the other: news come in between."""
        later = 0.0
        for kind in kinds:
            cache = self._world.jobs.get(kind)
            for key, job in cache.objects.items() if cache is not None else ():
                quiet = is_quiet(job, self._world.pods_of(job))
                later += QUIET_PAUSE if quiet else 0.0
                self._enqueue((kind, key), later if quiet else 0.0)

    async def _until(self, event: asyncio.Event, seconds: float | None) -> None:
        """Return when the event is set, or that many of the clock's seconds have gone, or nothing is to begin."""
        if event.is_set() or self._stopping.is_set():
            return
        waits: list[asyncio.Task[bool] | asyncio.Task[None]] = [asyncio.create_task(event.wait())]
        if seconds is not None:
            waits.append(asyncio.create_task(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
