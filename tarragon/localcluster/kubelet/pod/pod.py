"""The worker of one pod on this node, from the pod's admission until only its logs are left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog
from msgspec.structs import replace

from tarragon.client.errors import ApiError, Conflict, NotFound
from tarragon.client.port import DeleteOptions
from tarragon.localcluster.kubelet.base.spec import PODS_TO_RUN, Container, Pod
from tarragon.localcluster.kubelet.devices.devices import told
from tarragon.localcluster.kubelet.pod.admission import requests
from tarragon.localcluster.kubelet.pod.checkpoint import Change, Track
from tarragon.localcluster.kubelet.pod.context import Ground
from tarragon.localcluster.kubelet.pod.ending import Ending
from tarragon.localcluster.kubelet.pod.ignored import ignored
from tarragon.localcluster.kubelet.pod.launch import wished_gpus
from tarragon.localcluster.kubelet.pod.records import moment
from tarragon.localcluster.kubelet.pod.starting import FIRST_PAUSE, Starting
from tarragon.localcluster.kubelet.pod.status import Json, Standing, Verdict, full_name, pod_status
from tarragon.localcluster.kubelet.pod.status_writer import Reporter
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Course, Lives, Orders, decide, is_over
from tarragon.localcluster.kubelet.probes.prober import POST_START, Attendant
from tarragon.localcluster.kubelet.probes.results import grace_of

START_SECONDS = 1.0
FULL_DISK_PAUSE = 5.0
VANISHED_GRACE = 2.0
"""The longest grace period of a force-deleted pod, as a new pod of the same name may be waiting."""
SHUTDOWN = Verdict(reason="Terminated", message="Pod was terminated in response to imminent node shutdown.")
DEADLINE = Verdict(reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline")

_log = structlog.get_logger()


class PodWorker:
    """Reconciles one pod after each `update`, `vanish`, `end` or `wake`, and when something is due.

    `run` returns when the pod is finished; another worker cleans up when the pod is deleted. All state is on disk and
    in the API, so the worker of a restarted kubelet continues where this one stopped.
    """

    def __init__(self, context: Ground, pod: Pod) -> None:
        self.pod = pod
        self._context = context
        self._clock = context.clock
        self._status_writer = Reporter(context.cluster, context.clock, pod)
        self._checkpoint = Track(pod, context.folder, context.shims, context.clock)
        self._woken = asyncio.Event()
        self._finished = asyncio.Event()
        self._is_deleted = False
        self._was_delete_sent = False
        self._released = asyncio.Event()
        self._reported_starts: set[tuple[str, int]] = set()
        self._starter = Starting(context, self._checkpoint, self._record_event)
        self._prober = Attendant(context.handlers, context.clock, self._record_event, self.wake)
        self._stopper = Ending(context.shims, context.handlers, context.clock, self._record_event, self.wake)

    def update(self, pod: Pod) -> None:
        """Take over the pod's newest state in the API."""
        self.pod = pod
        self._status_writer.seen(pod)
        self.wake()

    def vanish(self) -> None:
        """Note that the pod was deleted from the API."""
        self._is_deleted = True
        self.wake()

    def end(self, verdict: Verdict) -> None:
        """End the pod, as the node evicts or rejects it or shuts down."""
        record = self._checkpoint.record
        if not record.verdict_reason and not self.pod.is_finished:
            self._checkpoint.save(replace(record, verdict_reason=verdict.reason, verdict_message=verdict.message))
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def running(self) -> Mapping[str, Path]:
        """The run folder of each live container, by container name."""
        return self._checkpoint.alive()

    async def ended(self) -> None:
        """Return when no container runs any more and the pod's status is written, or when the pod was removed."""
        await self._released.wait()
        await self._status_writer.written()

    async def run(self, predecessor: PodWorker | None = None) -> None:
        """Run the pod until it is removed, or finished with its status written.

        `predecessor` is the worker of an earlier pod of the same name, which is awaited first.
        """
        if predecessor is not None:
            await predecessor._finished.wait()  # noqa: SLF001 - the same class
        writing = asyncio.create_task(self._status_writer.run())
        try:
            await self._retry_on_full_disk(self._open)
            while not self._is_done():
                await self._retry_on_full_disk(self._step)
            if self._is_deleted:
                await self._retry_on_full_disk(self._clean_up)
        finally:
            self._prober.close()
            self._stopper.close()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._status_writer.give_up()
        self._finished.set()

    # ------------------------------------------------------------------------------------------------------------ steps

    async def _retry_on_full_disk(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step, and retry it while the disk is full; containers keep running meanwhile."""
        while True:
            try:
                return await step()
            except OSError as error:
                _log.error("the kubelet cannot write its files", pod=str(self.pod.metadata.key), error=str(error))
                self._record_event("Warning", "Failed", f"Error: the kubelet cannot write its files: {error.strerror}")
                await self._clock.sleep(FULL_DISK_PAUSE)

    async def _open(self) -> None:
        checkpoint, uid = self._checkpoint, self.pod.metadata.uid
        is_new = checkpoint.is_new and not self.pod.is_finished
        checkpoint.open()
        if is_new:
            self._admit()
        elif not self._is_stopping():
            self._context.ledger.promise(uid, checkpoint.record.requests, checkpoint.record.all_devices)

    def _admit(self) -> None:
        result = self._context.ledger.admit(self.pod, wished_gpus(self.pod))
        if isinstance(result, Verdict):
            self._record_event("Warning", result.reason, result.message)
            self.end(result)
            return
        record = replace(self._checkpoint.record, requests=requests(self.pod), devices=result)
        self._checkpoint.save(record)
        if result:
            self._record_event("Normal", "DevicesAllocated", told(result, self._context.settings.pretended))
        if messages := ignored(self.pod):
            self._record_event("Normal", "NotCarriedOut", "; ".join(messages))

    async def _clean_up(self) -> None:
        self._release()
        await asyncio.to_thread(self._checkpoint.forget)

    async def _step(self) -> None:
        self._woken.clear()
        self._observe()
        self._probe()
        if self._has_passed_deadline():
            self._record_event("Normal", DEADLINE.reason, DEADLINE.message)
            self.end(DEADLINE)
        lives = self._checkpoint.lives(self._starter.troubles)
        orders = decide(self.pod.spec, lives, self._course(), self._clock.now())
        self._stop_containers(orders, lives)
        for name in orders.start:
            await self._starter.start(self.pod, name, lambda: not self._is_stopping())
        if orders.start:
            return
        wait = self._offer_status()
        wait += [(orders.wake - self._clock.now()).total_seconds()] if orders.wake else []
        if self._is_stopping() and not self._checkpoint.alive():
            wait += await self._finish()
            if self._is_settled():
                await self._status_writer.written()
                return
        if not self._is_done():
            await self._wait([*wait, *self._due(orders)])

    def _observe(self) -> None:
        changes = self._checkpoint.observe()
        if any(map(self._was_ended_by_machine, changes)):
            self.end(SHUTDOWN)
        for change in changes:
            self._on_change(change)

    def _is_done(self) -> bool:
        if self._checkpoint.alive():
            return False
        return self._is_deleted or (self._is_settled() and self._status_writer.is_done)

    def _is_settled(self) -> bool:
        return self.pod.is_finished and not self.pod.metadata.is_ending and self._released.is_set()

    def _is_stopping(self) -> bool:
        is_terminating = self._is_deleted or self.pod.metadata.is_ending
        return is_terminating or self.pod.is_finished or bool(self._checkpoint.record.verdict_reason)

    def _course(self) -> Course:
        return Course.HALT if self._is_stopping() else Course.ON

    def _has_passed_deadline(self) -> bool:
        due = self._deadline_seconds()
        return due is not None and due <= 0

    def _deadline_seconds(self) -> float | None:
        """Seconds left of spec.activeDeadlineSeconds."""
        allowed = self.pod.spec.active_deadline_seconds
        if allowed is None or self._is_stopping():
            return None
        return self._checkpoint.record.started + allowed - self._clock.now().timestamp()

    def _due(self, orders: Orders) -> list[float]:
        """Seconds until this worker must act. Containers that wait for others to end need no timer."""
        deadline = self._deadline_seconds()
        return ([] if deadline is None else [deadline]) + self._stopper.dues(orders.stop)

    async def _wait(self, seconds: list[float]) -> None:
        waking = asyncio.ensure_future(self._woken.wait())
        timer = asyncio.ensure_future(self._clock.sleep(max(0.0, min(seconds)))) if seconds else None
        try:
            await asyncio.wait({waking, timer} if timer else {waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            if timer:
                timer.cancel()

    def _on_change(self, change: Change) -> None:
        name, outcome = change.container.name, change.run.outcome
        if change.run.started and (name, change.run.number) not in self._reported_starts:
            self._reported_starts.add((name, change.run.number))
            self._record_event("Normal", "Started", f"Started container {name}")
        if outcome is None:
            return
        self._prober.leave(name)
        self._stopper.ended(name)
        if outcome.started is None:
            self._record_event("Warning", "Failed", f"Error: {outcome.message}")
        life = self._checkpoint.lives({})[name]
        back = life.back_at()
        if back is not None and self._course() is Course.ON and self.pod.spec.restart_policy != "Never":
            message = f"Back-off restarting failed container {name} in pod {full_name(self.pod)}"
            self._record_event("Warning", "BackOff", message)

    # ----------------------------------------------------------------------------------------------- hooks and probes

    def _probe(self) -> None:
        """Start probing new runs, and save the results so far."""
        if self._is_stopping():
            self._prober.halt()
        for name, (number, fitness) in self._prober.fitness.items():
            self._checkpoint.note(name, number, fitness)
        for place, run in self._checkpoint.places():
            record = self._checkpoint.record.container(place.container.name)
            self._prober.attend(place, run, record.fitness_of(run.number))

    # ----------------------------------------------------------------------------------------------------------- ending

    def _was_ended_by_machine(self, change: Change) -> bool:
        """Whether the machine ended the run: by SIGTERM from outside, or by a crash if a controller owns the pod."""
        outcome = change.run.outcome
        if outcome is None or self._is_stopping():
            return False
        lives = self._checkpoint.lives({})
        if lives[change.container.name].fitness.unfit:
            return False
        if change.container.is_sidecar and is_over(self.pod.spec, lives):
            return False
        was_lost_with_machine = change.is_late and outcome.was_lost and self.pod.metadata.controller is not None
        return outcome.was_told or was_lost_with_machine

    def _stop_containers(self, orders: Orders, lives: Lives) -> None:
        for apply, names in ((self._stopper.prepare, orders.await_turn), (self._stopper.stop, orders.stop)):
            for name in names:
                place, unfit = self._checkpoint.place(name), lives[name].fitness.unfit
                apply(place, self._grace(place.container, unfit), self._killing_message(place.container, unfit))

    def _grace(self, container: Container, unfit: str) -> float:
        grace = float(self.pod.grace_seconds)
        if self._is_deleted:
            return min(grace, VANISHED_GRACE)
        probe_grace = None if self._is_stopping() else grace_of(container, unfit)
        return grace if probe_grace is None else float(probe_grace)

    def _killing_message(self, container: Container, unfit: str) -> str:
        """The message of the Killing event, worded as in Kubernetes."""
        if not unfit or self._is_stopping():
            return f"Stopping container {container.name}"
        if unfit == POST_START:
            return POST_START
        restarts = container.is_sidecar or self.pod.spec.restart_policy != "Never"
        return f"Container {container.name} failed {unfit}{', will be restarted' if restarts else ''}"

    async def _finish(self) -> list[float]:
        """Release the pod's resources and, if it is terminating, delete it from the API; return when to retry."""
        self._release()
        if self._is_deleted or self._was_delete_sent or not self.pod.metadata.is_ending:
            return []
        await self._status_writer.written()
        options = DeleteOptions(uid=self.pod.metadata.uid, grace_seconds=0)
        try:
            await self._context.cluster.delete(PODS_TO_RUN, self.pod.metadata.key, options)
            self._was_delete_sent = True
        except (NotFound, Conflict):
            self._is_deleted = True
        except ApiError:
            return [FIRST_PAUSE]
        return []

    def _release(self) -> None:
        if not self._released.is_set():
            self._context.ledger.release(self.pod.metadata.uid)
            self._context.ports.release(f"{self._context.settings.name}/{self.pod.metadata.uid}")
            self._released.set()

    # ----------------------------------------------------------------------------------------------- status and events

    def _offer_status(self) -> list[float]:
        """Offer the status to the writer; while a container is just starting, wait for more to report."""
        if self._is_deleted or self._checkpoint.is_foreign:
            return []
        delay = self._starter.begun + START_SECONDS - self._clock.monotonic()
        if delay > 0 and self._checkpoint.is_starting():
            return [delay]
        record = self._checkpoint.record
        facts = Standing(
            lives=self._checkpoint.lives(self._starter.troubles),
            course=self._course(),
            verdict=record.verdict,
            started=moment(record.started),
            host=self._context.settings.address,
            address=self._context.settings.pod_address,
            environments={name: container.environment for name, container in record.containers.items()},
        )

        def render(pod: Pod) -> Json:
            return pod_status(pod, facts, self._clock.now())

        self._status_writer.offer(render)
        return []

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self._context.recorder.tell(self.pod, "Warning" if kind == "Warning" else "Normal", reason, message)
