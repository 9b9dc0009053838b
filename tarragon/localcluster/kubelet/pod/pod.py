"""One pod on this node, from its admission to the moment when nothing of it is left but its logs."""

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
"""A pod that is gone from the API was deleted by force: somebody wants it away, and another may want its name."""
SHUTDOWN = Verdict(reason="Terminated", message="Pod was terminated in response to imminent node shutdown.")
DEADLINE = Verdict(reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline")

_log = structlog.get_logger()


class PodWorker:
    """Does what is due whenever something has changed: by `update`, `vanish`, `end`, `wake`, or by time.

    A pod that is finished needs no worker until it is deleted: then `run` returns, and another worker ends the story.
    All truth is on the disk and in the API: another kubelet's worker for the same pod goes on where this one was.
    """

    def __init__(self, ground: Ground, pod: Pod) -> None:
        self.pod = pod
        self._ground = ground
        self._clock = ground.clock
        self._reporter = Reporter(ground.cluster, ground.clock, pod)
        self._track = Track(pod, ground.folder, ground.shims, ground.clock)
        self._woken = asyncio.Event()
        self._gone = asyncio.Event()
        self._vanished = False
        self._deleted = False
        self._settled = asyncio.Event()
        self._started: set[tuple[str, int]] = set()
        self._starting = Starting(ground, self._track, self._tell)
        self._attendant = Attendant(ground.handlers, ground.clock, self._tell, self.wake)
        self._ending = Ending(ground.shims, ground.handlers, ground.clock, self._tell, self.wake)

    def update(self, pod: Pod) -> None:
        """The API has the pod like this now."""
        self.pod = pod
        self._reporter.seen(pod)
        self.wake()

    def vanish(self) -> None:
        """The API has no such pod any more."""
        self._vanished = True
        self.wake()

    def end(self, verdict: Verdict) -> None:
        """The node does not want it any more."""
        record = self._track.record
        if not record.verdict_reason and not self.pod.is_finished:
            self._track.save(replace(record, verdict_reason=verdict.reason, verdict_message=verdict.message))
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def running(self) -> Mapping[str, Path]:
        """The folder of each container's run that goes on, by the container's name."""
        return self._track.alive()

    async def ended(self) -> None:
        """Return when nothing of it runs any more and the API knows, or when nothing is left of it."""
        await self._settled.wait()
        await self._reporter.written()

    async def run(self, before: PodWorker | None = None) -> None:
        """Until nothing is left of the pod, or it is finished and told.

        `before` is another pod of the same name, whose end is awaited first.
        """
        if before is not None:
            await before._gone.wait()  # noqa: SLF001 - one of us
        reporting = asyncio.create_task(self._reporter.run())
        try:
            await self._persistently(self._begin)
            while not self._is_over():
                await self._persistently(self._step)
            if self._vanished:
                await self._persistently(self._leave)
        finally:
            self._attendant.close()
            self._ending.close()
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            self._reporter.give_up()
        self._gone.set()

    # ------------------------------------------------------------------------------------------------------------ steps

    async def _persistently(self, step: Callable[[], Awaitable[None]]) -> None:
        """A full disk passes; what runs goes on meanwhile."""
        while True:
            try:
                return await step()
            except OSError as error:
                _log.error("the kubelet cannot keep its records", pod=str(self.pod.metadata.key), error=str(error))
                self._tell("Warning", "Failed", f"Error: the kubelet cannot keep its records: {error.strerror}")
                await self._clock.sleep(FULL_DISK_PAUSE)

    async def _begin(self) -> None:
        track, uid = self._track, self.pod.metadata.uid
        is_new = track.is_new and not self.pod.is_finished
        track.open()
        if is_new:
            self._admit()
        elif not self._is_halted():
            self._ground.ledger.promise(uid, track.record.requests, track.record.all_devices)

    def _admit(self) -> None:
        answer = self._ground.ledger.admit(self.pod, wished_gpus(self.pod))
        if isinstance(answer, Verdict):
            self._tell("Warning", answer.reason, answer.message)
            self.end(answer)
            return
        record = replace(self._track.record, requests=requests(self.pod), devices=answer)
        self._track.save(record)
        if answer:
            self._tell("Normal", "DevicesAllocated", told(answer, self._ground.settings.pretended))
        if words := ignored(self.pod):
            self._tell("Normal", "NotCarriedOut", "; ".join(words))

    async def _leave(self) -> None:
        self._release()
        await asyncio.to_thread(self._track.forget)

    async def _step(self) -> None:
        self._woken.clear()
        self._observe()
        self._attend()
        if self._is_past_its_deadline():
            self._tell("Normal", DEADLINE.reason, DEADLINE.message)
            self.end(DEADLINE)
        lives = self._track.lives(self._starting.troubles)
        orders = decide(self.pod.spec, lives, self._course(), self._clock.now())
        self._stop(orders, lives)
        for name in orders.start:
            await self._starting.start(self.pod, name, lambda: not self._is_halted())
        if orders.start:
            return
        wait = self._report()
        wait += [(orders.wake - self._clock.now()).total_seconds()] if orders.wake else []
        if self._is_halted() and not self._track.alive():
            wait += await self._settle()
            if self._is_at_rest():
                await self._reporter.written()
                return
        if not self._is_over():
            await self._wait([*wait, *self._due(orders)])

    def _observe(self) -> None:
        changes = self._track.observe()
        if any(map(self._is_ended_by_the_machine, changes)):
            self.end(SHUTDOWN)
        for change in changes:
            self._changed(change)

    def _is_over(self) -> bool:
        if self._track.alive():
            return False
        return self._vanished or (self._is_at_rest() and self._reporter.is_done)

    def _is_at_rest(self) -> bool:
        return self.pod.is_finished and not self.pod.metadata.is_ending and self._settled.is_set()

    def _is_halted(self) -> bool:
        ending = self._vanished or self.pod.metadata.is_ending
        return ending or self.pod.is_finished or bool(self._track.record.verdict_reason)

    def _course(self) -> Course:
        return Course.HALT if self._is_halted() else Course.ON

    def _is_past_its_deadline(self) -> bool:
        due = self._deadline()
        return due is not None and due <= 0

    def _deadline(self) -> float | None:
        """Seconds left of spec.activeDeadlineSeconds."""
        allowed = self.pod.spec.active_deadline_seconds
        if allowed is None or self._is_halted():
            return None
        return self._track.record.started + allowed - self._clock.now().timestamp()

    def _due(self, orders: Orders) -> list[float]:
        """Seconds until something of ours is due. Who waits for others to end is asked again when they have."""
        deadline = self._deadline()
        return ([] if deadline is None else [deadline]) + self._ending.dues(orders.stop)

    async def _wait(self, seconds: list[float]) -> None:
        waking = asyncio.ensure_future(self._woken.wait())
        timer = asyncio.ensure_future(self._clock.sleep(max(0.0, min(seconds)))) if seconds else None
        try:
            await asyncio.wait({waking, timer} if timer else {waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            if timer:
                timer.cancel()

    def _changed(self, change: Change) -> None:
        name, outcome = change.container.name, change.run.outcome
        if change.run.started and (name, change.run.number) not in self._started:
            self._started.add((name, change.run.number))
            self._tell("Normal", "Started", f"Started container {name}")
        if outcome is None:
            return
        self._attendant.leave(name)
        self._ending.ended(name)
        if outcome.started is None:
            self._tell("Warning", "Failed", f"Error: {outcome.message}")
        life = self._track.lives({})[name]
        back = life.back_at()
        if back is not None and self._course() is Course.ON and self.pod.spec.restart_policy != "Never":
            words = f"Back-off restarting failed container {name} in pod {full_name(self.pod)}"
            self._tell("Warning", "BackOff", words)

    # ----------------------------------------------------------------------------------------------- hooks and probes

    def _attend(self) -> None:
        """Go on to look after what runs, and write down what was found out."""
        if self._is_halted():
            self._attendant.halt()
        for name, (number, fitness) in self._attendant.fitness.items():
            self._track.note(name, number, fitness)
        for place, run in self._track.places():
            known = self._track.record.container(place.container.name)
            self._attendant.attend(place, run, known.fitness_of(run.number))

    # ----------------------------------------------------------------------------------------------------------- ending

    def _is_ended_by_the_machine(self, change: Change) -> bool:
        """It was told to end, by nobody here; or it went down with the machine, and somebody can make it anew."""
        outcome = change.run.outcome
        if outcome is None or self._is_halted():
            return False
        lives = self._track.lives({})
        if lives[change.container.name].fitness.unfit:
            return False
        if change.container.is_sidecar and is_over(self.pod.spec, lives):
            return False
        is_left = change.is_late and outcome.was_lost and self.pod.metadata.controller is not None
        return outcome.was_told or is_left

    def _stop(self, orders: Orders, lives: Lives) -> None:
        for act, names in ((self._ending.prepare, orders.await_turn), (self._ending.stop, orders.stop)):
            for name in names:
                place, unfit = self._track.place(name), lives[name].fitness.unfit
                act(place, self._grace(place.container, unfit), self._killing(place.container, unfit))

    def _grace(self, container: Container, unfit: str) -> float:
        grace = float(self.pod.grace_seconds)
        if self._vanished:
            return min(grace, VANISHED_GRACE)
        own = None if self._is_halted() else grace_of(container, unfit)
        return grace if own is None else float(own)

    def _killing(self, container: Container, unfit: str) -> str:
        """A kubelet's words."""
        if not unfit or self._is_halted():
            return f"Stopping container {container.name}"
        if unfit == POST_START:
            return POST_START
        again = container.is_sidecar or self.pod.spec.restart_policy != "Never"
        return f"Container {container.name} failed {unfit}{', will be restarted' if again else ''}"

    async def _settle(self) -> list[float]:
        """Nothing runs any more and nothing will: give everything back, and let the API have its way."""
        self._release()
        if self._vanished or self._deleted or not self.pod.metadata.is_ending:
            return []
        await self._reporter.written()
        options = DeleteOptions(uid=self.pod.metadata.uid, grace_seconds=0)
        try:
            await self._ground.cluster.delete(PODS_TO_RUN, self.pod.metadata.key, options)
            self._deleted = True
        except (NotFound, Conflict):
            self._vanished = True
        except ApiError:
            return [FIRST_PAUSE]
        return []

    def _release(self) -> None:
        if not self._settled.is_set():
            self._ground.ledger.release(self.pod.metadata.uid)
            self._ground.ports.release(f"{self._ground.settings.name}/{self.pod.metadata.uid}")
            self._settled.set()

    # ---------------------------------------------------------------------------------------------------------- telling

    def _report(self) -> list[float]:
        """What is only just starting is not told: in a moment there is more to tell."""
        if self._vanished or self._track.is_foreign:
            return []
        patience = self._starting.begun + START_SECONDS - self._clock.monotonic()
        if patience > 0 and self._track.is_starting():
            return [patience]
        record = self._track.record
        standing = Standing(
            lives=self._track.lives(self._starting.troubles),
            course=self._course(),
            verdict=record.verdict,
            started=moment(record.started),
            host=self._ground.settings.address,
            address=self._ground.settings.pod_address,
            environments={name: known.environment for name, known in record.containers.items()},
        )

        def render(pod: Pod) -> Json:
            return pod_status(pod, standing, self._clock.now())

        self._reporter.offer(render)
        return []

    def _tell(self, kind: str, reason: str, message: str) -> None:
        self._ground.recorder.tell(self.pod, "Warning" if kind == "Warning" else "Normal", reason, message)
