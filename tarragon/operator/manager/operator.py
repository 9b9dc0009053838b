"""The operator: runs the caches, queues changed jobs for the reconciler, and wakes the scheduler."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Unavailable
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.leader_election import LeaseLost
from tarragon.client.middleware.write_through import WriteThroughClient
from tarragon.client.port import Client
from tarragon.client.wakeup import WakeupSignal
from tarragon.frameworks.owned_objects import OwnedContent
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import Pod, Service
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.gpu_anchors.controller import AnchorController
from tarragon.operator.informers.informers import Informers
from tarragon.operator.informers.progress_changes import changes_progress_only
from tarragon.operator.informers.unrecorded_reports import record_delay
from tarragon.operator.informers.watch_errors import WatchErrorLog
from tarragon.operator.log_reading.log_reader import LogReader, LogReadingOptions
from tarragon.operator.manager.own_image import OwnImage
from tarragon.operator.manager.startup_order import seems_up_to_date
from tarragon.operator.metrics.definitions import UNEXPECTED_ERROR
from tarragon.operator.metrics.meter import Meter, NoMeter
from tarragon.operator.progress.receiver import ProgressReceiver
from tarragon.operator.progress.server import ProgressOptions
from tarragon.operator.progress.service import ProgressService
from tarragon.operator.reconciler.apply import ApplyContext
from tarragon.operator.reconciler.watchdog import Watchdog
from tarragon.operator.reconciler.worker import JobId, Worker
from tarragon.operator.scheduler.config.publisher import ConfigPublisher
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.plan.config.published import PublishedConfig
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.objects.progress import ProgressEndpoint
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.rules import DEFAULT_POLICY, SchedulingRules
from tarragon.scheduling.policies import POLICIES, policy_name
from tarragon.scheduling.state.memory import Policy

RULES_CHECK_SECONDS = 5.0
"""How often the scheduling rules are checked for changes."""
RESYNC_SECONDS = 300.0
"""Resync period: every job is reconciled this often, which covers a wall clock that jumped past a deadline."""
RESYNC_SPACING = 0.001
"""Seconds between resyncs of two unchanged jobs: ten thousand at once would delay urgent ones."""
CYCLE_SPACING = 0.02
"""Minimum seconds between two scheduling cycles, so that a burst of a thousand changes costs two cycles."""

Owned = Pod | Service | PodGroup | OwnedContent
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """The operator's options: everything but the cluster and the clock."""

    settings: OperatorSettings = field(default_factory=OperatorSettings)
    policy: Policy = POLICIES[DEFAULT_POLICY]
    rules: Callable[[], SchedulingRules] = SchedulingRules
    """Called in each cycle and every RULES_CHECK_SECONDS: the rules may be in a file that people edit."""
    publish_namespace: str = ""
    """The namespace to publish the policy and the rules in; empty to publish nothing."""
    frameworks: Sequence[Framework] = FRAMEWORKS
    seed: int | None = None
    """Seed of the backoff jitter."""
    meter: Meter = field(default_factory=NoMeter)
    log_reading: LogReadingOptions | None = None
    """Which logs are read for the progress that programs print; None for none."""
    progress: ProgressOptions | None = None
    """How programs report progress; None if they can't."""


async def run(cluster: Client, clock: Clock, options: OperatorOptions = OperatorOptions()) -> None:
    """Run an operator without leader election until cancelled."""
    await Operator(cluster, clock, options).run()


class Operator:
    """Caches follow the cluster at all times; jobs are reconciled and scheduled only while this operator leads."""

    def __init__(self, cluster: Client, clock: Clock, options: OperatorOptions) -> None:
        self._clock = clock
        self._cluster = cluster
        jitter = random.Random(options.seed)
        self._informers = Informers(cluster, options.frameworks, clock, options.settings, jitter)
        write_through = WriteThroughClient(cluster, self._informers)
        recorder = EventRecorder(cluster, clock)
        context = ApplyContext(cluster=write_through, clock=clock, recorder=recorder)
        self._worker = Worker(context, self._informers, options.meter)
        self._recorder = recorder
        config = AdmissionConfig(rules=options.rules, meter=options.meter, recorder=recorder)
        self._rules = options.rules
        self._policy = policy_name(options.policy)
        self._publisher = (
            ConfigPublisher(cluster, clock, options.publish_namespace) if options.publish_namespace else None
        )
        self._scheduler = GangScheduler(write_through, clock, self._informers, options.policy, config)
        self._anchor_controller = AnchorController(write_through, clock, self._informers)
        self._log_reader = (
            None
            if options.log_reading is None
            else LogReader(write_through, clock, self._informers, options.log_reading)
        )
        self._wakeup = WakeupSignal(clock)
        self._stopping = asyncio.Event()
        self._is_leading = False
        self._watchdog = Watchdog(clock)
        self._meter = options.meter
        self._meter.attach(self._informers, self._worker.queue)
        self._progress = options.progress
        self._subscribe()

    async def run(self) -> None:
        """Run without leader election."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_caches())
            await self.wait_for_sync()
            progress = self.progress_service(self._cluster)
            if progress is not None:
                tasks.create_task(progress.run())
                await progress.first_attempt()
            await self.lead()

    async def run_caches(self) -> None:
        """Keep the caches up to date until cancelled; makes no decisions and no writes."""
        troubles = WatchErrorLog(self._clock, self._informers.is_expected_error)
        async with asyncio.TaskGroup() as tasks:
            for cache in self._informers.caches:
                cache.on_error(troubles.log_error)
                cache.on_recovery(troubles.log_recovery)
                cache.on_lost_watch(troubles.log_lost_watch)
                tasks.create_task(cache.run())

    async def wait_for_sync(self) -> None:
        """Wait until all caches have synced."""
        await self._informers.wait_for_sync()

    @property
    def unsynced_kinds(self) -> Sequence[str]:
        """The kinds whose caches have not synced yet."""
        return self._informers.unsynced_kinds

    async def lead(self) -> None:
        """Reconcile and schedule until `stop`, then finish the work in progress. Raises LeaseLost."""
        self._is_leading = True
        self._enqueue_all(self._informers.jobs)
        self._wakeup.set()
        self._worker.start()
        if self._log_reader is not None:
            self._log_reader.look_at_all()
        self._meter.leadership_changed(True)
        try:
            async with asyncio.TaskGroup() as tasks:
                resync = tasks.create_task(self._resync())
                watch_rules = tasks.create_task(self._watch_rules())
                tasks.create_task(self._worker.run(tasks))
                tasks.create_task(self._run_cycles())
                tasks.create_task(self._anchor_controller.run())
                read_logs = None if self._log_reader is None else tasks.create_task(self._log_reader.run())
                await self._stopping.wait()
                resync.cancel()
                watch_rules.cancel()
                if read_logs is not None:
                    read_logs.cancel()
            await self._recorder.drain()
        finally:
            self._is_leading = False
            self._meter.leadership_changed(False)

    @property
    def is_leading(self) -> bool:
        """Whether `lead` is running, including the shutdown after `stop`."""
        return self._is_leading

    def leave_kinds_to(self, left_to: Mapping[str, str]) -> None:
        """Leave these kinds' jobs to other operators, by kind and description; all other kinds are managed again."""
        kinds = {*left_to, *self._informers.settings.other_managers}
        self._informers.settings = replace(self._informers.settings, other_managers=left_to)
        for kind in kinds & self._informers.jobs.keys():
            self._scheduler.reread(kind)
        self._wakeup.set()
        self._enqueue_all(kinds)

    def use_own_image(self, image: OwnImage) -> None:
        """Run this image in the anchors of GPUs and in the init containers of pods that are created from now on."""
        settings = self._informers.settings
        anchors = settings.gpu_anchors
        if anchors is not None:
            anchors = replace(anchors, image_pull_secrets=image.pull_secrets)
        self._informers.settings = replace(settings, own_image=image.name, gpu_anchors=anchors)

    def progress_service(self, cluster: Client) -> ProgressService | None:
        """Return what serves reports of progress, if that is wanted. Its client may write without leading."""
        if self._progress is None:
            return None
        receiver = ProgressReceiver(cluster, self._clock, self._informers, self._meter)
        return ProgressService(cluster, self._clock, receiver, self._progress, self._announce_progress)

    def _announce_progress(self, endpoint: ProgressEndpoint) -> None:
        """Let the programs of pods that are created from now on report there."""
        self._informers.settings = replace(self._informers.settings, progress=endpoint)

    @property
    def restart_reasons(self) -> Sequence[str]:
        """Reasons to restart the process: work that made no progress for too long. Always empty on a standby."""
        if not self._is_leading:
            return []
        return [*self._worker.restart_reasons(), *self._watchdog.overdue()]

    def stop(self) -> None:
        """Start no more work."""
        self._stopping.set()
        self._worker.stop()
        self._wakeup.shut_down()
        self._anchor_controller.stop()

    def _subscribe(self) -> None:
        for kind, cache in self._informers.jobs.items():
            cache.add_event_handler(self._job_handler(kind))
            cache.add_event_handler(self._report_handler(kind))
            if self._log_reader is not None:
                cache.add_event_handler(self._log_handler(kind, self._log_reader))
        self._informers.pods.add_event_handler(self._owned_changed)
        self._informers.services.add_event_handler(self._owned_changed)
        for groups in self._informers.pod_groups:
            groups.add_event_handler(self._owned_changed)
        for owned in self._informers.owned_objects.all:
            owned.add_event_handler(self._owned_changed)
        self._informers.accepted_admissions.subscribe(lambda job: self._enqueue(job, 0.0))
        self._informers.first_decisions.subscribe(lambda job: self._enqueue(job, 0.0))
        self._informers.pod_gpus.on_job_change(self._enqueue_in_burst)
        # An assumed pod that expired releases resources.
        self._informers.assumed_pods.subscribe(lambda _job: self._wakeup.set())
        for cache in (self._informers.nodes, *self._informers.cluster_wide_caches):
            cache.add_event_handler(lambda _key, _old, _new: self._wakeup.set())
        # If nodes cannot be read for too long, placement is left to kube-scheduler.
        self._informers.nodes.on_error(lambda _: self._wakeup.set())

    def _job_handler(self, kind: str) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def changed(key: Key, old: CustomObject | None, new: CustomObject | None) -> None:
            if old is not None and new is not None and changes_progress_only(old, new):
                return
            self._enqueue((kind, key), 0.0)
            self._wakeup.set()

        return changed

    def _report_handler(self, kind: str) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        """Return a handler that has the reports recorded that count: most changes of progress concern nobody."""

        def changed(key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
            delay = record_delay(new) if self._is_leading and new is not None else None
            if delay is not None:
                self._enqueue((kind, key), delay)

        return changed

    def _log_handler(
        self, kind: str, reader: LogReader
    ) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def changed(key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
            if new is None:
                reader.forget((kind, key))
            elif self._is_leading:
                reader.job_changed((kind, key))

        return changed

    def _owned_changed(self, _: Key, old: Owned | None, new: Owned | None) -> None:
        current = new if new is not None else old
        if self._is_leading and current is not None:
            job = self._informers.job_of(current.metadata)
            if job is not None:
                self._enqueue_in_burst(job)
        if isinstance(current, Pod):
            # Any pod changes the free capacity, whoever created it.
            self._wakeup.set()

    def _enqueue(self, job: JobId, delay: float) -> None:
        if self._is_leading:  # A new leader queues all jobs anyway.
            self._worker.add(job, delay)

    def _enqueue_in_burst(self, job: JobId) -> None:
        """Queue a job of which something has changed that seldom changes alone, such as the pods of a gang."""
        if self._is_leading:
            self._worker.add_in_burst(job)

    async def _run_cycles(self) -> None:
        pause: float | None = None
        next_at = self._clock.monotonic()
        while True:
            await self._wakeup.wait(pause)
            if self._stopping.is_set():
                return
            await self._clock.sleep(max(0.0, next_at - self._clock.monotonic()))
            self._wakeup.clear()
            started, failure = self._clock.monotonic(), ""
            try:
                with self._watchdog.track("scheduling cycle"):
                    pause = await self._scheduler.run_cycle()
            except ApiError as error:
                failure = type(error).__name__
                log.warning("scheduling cycle failed", error=str(error))
                pause = max(1.0, error.retry_after) if not isinstance(error, Unavailable) else 1.0
            except LeaseLost:
                raise
            except Exception:
                failure = UNEXPECTED_ERROR
                log.exception("unexpected error in a scheduling cycle")
                pause = 10.0
            self._meter.cycle_finished(self._clock.monotonic() - started, failure)
            next_at = self._clock.monotonic() + CYCLE_SPACING

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(RESYNC_SECONDS)
            self._enqueue_all(self._informers.jobs)
            self._wakeup.set()

    async def _watch_rules(self) -> None:
        rules = self._rules()
        while True:
            if self._publisher is not None:
                await self._publisher.publish(PublishedConfig(policy=self._policy, rules=rules))
            await self._clock.sleep(RULES_CHECK_SECONDS)
            rules, previous = self._rules(), rules
            if rules != previous:
                self._wakeup.set()

    def _enqueue_all(self, kinds: Iterable[str]) -> None:
        """Queue all jobs of these kinds: changed ones at once, unchanged ones spread out so that they delay nothing."""
        delay = 0.0
        for kind in kinds:
            cache = self._informers.jobs.get(kind)
            for key, job in cache.objects.items() if cache is not None else ():
                is_unchanged = seems_up_to_date(job, self._informers.pods_of(job))
                delay += RESYNC_SPACING if is_unchanged else 0.0
                self._enqueue((kind, key), delay if is_unchanged else 0.0)
