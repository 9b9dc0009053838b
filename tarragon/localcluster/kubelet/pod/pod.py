"""The worker of one pod on this node, from the pod's admission until only its logs are left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import structlog
from msgspec.structs import replace

from tarragon.base.resources import NVIDIA_GPU
from tarragon.client.errors import ApiError, Conflict, NotFound
from tarragon.client.port import DeleteOptions
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, VGPU_ANNOTATION
from tarragon.localcluster.kubelet.base.pod_lifecycle import (
    ContainerActions,
    DesiredState,
    RuntimeStatuses,
    compute_actions,
    is_complete,
)
from tarragon.localcluster.kubelet.base.spec import KUBELET_PODS, Container, Pod
from tarragon.localcluster.kubelet.devices.devices import DeviceIds, allocation_text
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart, part_text
from tarragon.localcluster.kubelet.pod.admission import pod_requests
from tarragon.localcluster.kubelet.pod.checkpoint import PodCheckpoint, RunChange
from tarragon.localcluster.kubelet.pod.context import NodeContext
from tarragon.localcluster.kubelet.pod.ignored_fields import ignored_fields
from tarragon.localcluster.kubelet.pod.launch import requested_gpus
from tarragon.localcluster.kubelet.pod.records import PodRecord, from_timestamp
from tarragon.localcluster.kubelet.pod.starting import FIRST_PAUSE, ContainerStarter
from tarragon.localcluster.kubelet.pod.status import Json, PodFailure, StatusFacts, full_name, pod_status
from tarragon.localcluster.kubelet.pod.status_writer import StatusWriter
from tarragon.localcluster.kubelet.pod.stopping import ContainerStopper
from tarragon.localcluster.kubelet.probes.prober import FAILED_POST_START_HOOK, Prober
from tarragon.localcluster.kubelet.probes.results import probe_grace_seconds

START_SECONDS = 1.0
FULL_DISK_PAUSE = 5.0
VANISHED_GRACE = 2.0
"""The longest grace period of a force-deleted pod, as a new pod of the same name may be waiting."""
SHUTDOWN = PodFailure(reason="Terminated", message="Pod was terminated in response to imminent node shutdown.")
DEADLINE = PodFailure(
    reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline"
)

_log = structlog.get_logger()


class PodWorker:
    """Reconciles one pod after each `update`, `on_deleted`, `end` or `wake`, and when something is due.

    `run` returns when the pod is finished; another worker cleans up when the pod is deleted. All state is on disk and
    in the API, so the worker of a restarted kubelet continues where this one stopped.
    """

    def __init__(self, context: NodeContext, pod: Pod) -> None:
        self.pod = pod
        self._context = context
        self._clock = context.clock
        self._status_writer = StatusWriter(context.cluster, context.clock, pod)
        self._checkpoint = PodCheckpoint(pod, context.folder, context.shims, context.clock)
        self._woken = asyncio.Event()
        self._finished = asyncio.Event()
        self._is_deleted = False
        self._was_delete_sent = False
        self._released = asyncio.Event()
        self._reported_starts: set[tuple[str, int]] = set()
        self._starter = ContainerStarter(context, self._checkpoint, self._record_event)
        self._prober = Prober(context.handlers, context.clock, self._record_event, self.wake)
        self._stopper = ContainerStopper(context.shims, context.handlers, context.clock, self._record_event, self.wake)

    def update(self, pod: Pod) -> None:
        """Take over the pod's newest state in the API."""
        self.pod = pod
        self._status_writer.observe(pod)
        self.wake()

    def on_deleted(self) -> None:
        """Note that the pod was deleted from the API."""
        self._is_deleted = True
        self.wake()

    def end(self, verdict: PodFailure) -> None:
        """End the pod, as the node evicts or rejects it or shuts down."""
        record = self._checkpoint.record
        if not record.verdict_reason and not self.pod.is_finished:
            decided = replace(record, verdict_reason=verdict.reason, verdict_message=verdict.message)
            self._save_or_keep(decided)
        self.wake()

    def _save_or_keep(self, record: PodRecord) -> None:
        """Save the record if the disk is not full: what has ended has, and a pod that fills it must be ended."""
        if error := self._checkpoint.save_or_keep(record):
            self._log_full_disk(error)

    def wake(self) -> None:
        self._woken.set()

    @property
    def holds_resources_of_ended_pod(self) -> bool:
        """Whether the pod has ended or vanished for all who read the API, but its resources are not free yet."""
        has_ended = self._is_deleted or self.pod.is_finished
        return has_ended and self._context.ledger.is_allocated(self.pod.metadata.uid)

    def live_runs(self) -> Mapping[str, Path]:
        """The run folder of each live container, by container name."""
        return self._checkpoint.live_runs()

    async def wait_ended(self) -> None:
        """Return when no container runs any more and the pod's status is written, or when the pod was removed."""
        await self._released.wait()
        await self._status_writer.wait_written()

    async def run(self, predecessor: PodWorker | None, ending: Callable[[], Sequence[PodWorker]]) -> None:
        """Run the pod until it is removed, or finished with its status written.

        `predecessor` is the worker of an earlier pod of the same name, which is awaited first. `ending` are the workers
        of ended pods whose resources are not free yet.
        """
        if predecessor is not None:
            await predecessor._finished.wait()  # noqa: SLF001 - the same class
        writing = asyncio.create_task(self._status_writer.run())
        try:
            await self._retry_on_full_disk(lambda: self._open(ending))
            while not self._is_done():
                await self._retry_on_full_disk(self._step)
            if self._is_deleted:
                await self._retry_on_full_disk(self._clean_up)
        finally:
            self._prober.close()
            self._stopper.close()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._status_writer.abandon()
        self._finished.set()

    # ------------------------------------------------------------------------------------------------------------ steps

    async def _retry_on_full_disk(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step, and retry it while the disk is full; containers keep running meanwhile."""
        while True:
            try:
                return await step()
            except OSError as error:
                self._log_full_disk(error)
                await self._clock.sleep(FULL_DISK_PAUSE)

    def _log_full_disk(self, error: OSError) -> None:
        _log.error("the kubelet cannot write its files", pod=str(self.pod.metadata.key), error=str(error))
        self._record_event("Warning", "Failed", f"Error: the kubelet cannot write its files: {error.strerror}")

    async def _open(self, ending: Callable[[], Sequence[PodWorker]]) -> None:
        checkpoint, uid = self._checkpoint, self.pod.metadata.uid
        record, ledger = checkpoint.record, self._context.ledger
        # Before anything that a full disk may refuse: another pod must not get what this one holds.
        if not record.awaits_admission:
            ledger.allocate(uid, record.requests, record.all_devices, record.vgpu)
        checkpoint.open()
        if self._is_stopping() and not checkpoint.live_runs():
            ledger.release(uid)
        if not self.pod.is_finished:
            self._context.host_names.add(self.pod)
        if not checkpoint.is_known_from_api_only:
            checkpoint.write_facts()
        # By the record and not the ledger, which has this pod already if its admission could not be saved.
        if record.awaits_admission:
            if not self._is_stopping():
                await self._admit(ending)
        elif ledger.is_allocated(uid):
            self._report_vgpus()

    async def _admit(self, ending: Callable[[], Sequence[PodWorker]]) -> None:
        """Admit the pod or reject it, unless it is deleted or the node shuts down meanwhile.

        A scheduler may rely on the resources of ended pods: the pod waits for these.
        """
        ledger = self._context.ledger
        result = ledger.admit(self.pod, requested_gpus(self.pod))
        while isinstance(result, PodFailure) and (workers := ending()):
            self._woken.clear()
            await _wait_for_any([self._woken, *(worker._released for worker in workers)])  # noqa: SLF001 - the same class
            if self._is_stopping():
                return
            result = ledger.admit(self.pod, requested_gpus(self.pod))
        if isinstance(result, PodFailure):
            self._record_event("Warning", result.reason, result.message)
            self.end(result)
            return
        part = self._context.ledger.vgpus.part_of(self.pod.metadata.uid)
        requests = pod_requests(self.pod)
        record = self._checkpoint.record
        self._checkpoint.save(replace(record, awaits_admission=False, requests=requests, devices=result, vgpu=part))
        self._report_vgpus()
        if result:
            self._record_event("Normal", "DevicesAllocated", self._allocation_text(result, part))
        if messages := ignored_fields(self.pod):
            self._record_event("Normal", "NotCarriedOut", "; ".join(messages))

    def _allocation_text(self, devices: Mapping[str, DeviceIds], part: VgpuPart | None) -> str:
        settings = self._context.settings
        if part is None:
            return allocation_text(devices, settings.pretended)
        own = {
            container: {resource: ids for resource, ids in by_resource.items() if resource != NVIDIA_GPU}
            for container, by_resource in devices.items()
        }
        shared = part_text(part, settings.gpu_memory, pretended=NVIDIA_GPU in settings.pretended)
        return "; ".join(filter(None, (shared, allocation_text(own, settings.pretended))))

    def _report_vgpus(self) -> None:
        """Show the pod's part of a vGPU, if it has one, in annotations of the pod and of the node."""
        part = self._checkpoint.record.vgpu
        if part is not None:
            self._status_writer.annotate({VGPU_ANNOTATION: str(part.number), GPU_UUID_ANNOTATION: part.device})
            self._context.registration.report_vgpus(self._context.ledger.vgpus.table())

    async def _clean_up(self) -> None:
        self._release()
        self._context.host_names.remove(self.pod)
        await asyncio.to_thread(self._checkpoint.remove)

    async def _step(self) -> None:
        self._woken.clear()
        self._observe()
        self._probe()
        if self._has_passed_deadline():
            self._record_event("Normal", DEADLINE.reason, DEADLINE.message)
            self.end(DEADLINE)
        statuses = self._checkpoint.runtime_statuses(self._starter.failures)
        actions = compute_actions(self.pod.spec, statuses, self._desired_state(), self._clock.now())
        self._stop_containers(actions, statuses)
        for name in actions.start:
            await self._starter.start(self.pod, name, lambda: not self._is_stopping())
        if actions.start:
            return
        wait = self._offer_status()
        wait += [(actions.wake - self._clock.now()).total_seconds()] if actions.wake else []
        wait += [] if self._checkpoint.is_saved else [FULL_DISK_PAUSE]
        if self._is_stopping() and not self._checkpoint.live_runs():
            wait += await self._finish()
            if self._is_settled():
                await self._status_writer.wait_written()
                return
        if not self._is_done():
            await self._wait([*wait, *self._due(actions)])

    def _observe(self) -> None:
        changes = self._checkpoint.observe()
        if any(map(self._was_ended_by_machine, changes)):
            self.end(SHUTDOWN)
        elif not self._checkpoint.is_saved:
            self._save_or_keep(self._checkpoint.record)
        for change in changes:
            self._on_change(change)

    def _is_done(self) -> bool:
        if self._checkpoint.live_runs():
            return False
        return self._is_deleted or (self._is_settled() and self._status_writer.is_done)

    def _is_settled(self) -> bool:
        return self.pod.is_finished and not self.pod.metadata.is_being_deleted and self._released.is_set()

    def _is_stopping(self) -> bool:
        is_terminating = self._is_deleted or self.pod.metadata.is_being_deleted
        return is_terminating or self.pod.is_finished or bool(self._checkpoint.record.verdict_reason)

    def _desired_state(self) -> DesiredState:
        return DesiredState.STOP if self._is_stopping() else DesiredState.RUN

    def _has_passed_deadline(self) -> bool:
        due = self._deadline_seconds()
        return due is not None and due <= 0

    def _deadline_seconds(self) -> float | None:
        """Seconds left of spec.activeDeadlineSeconds."""
        allowed = self.pod.spec.active_deadline_seconds
        if allowed is None or self._is_stopping():
            return None
        return self._checkpoint.record.started + allowed - self._clock.now().timestamp()

    def _due(self, actions: ContainerActions) -> list[float]:
        """Seconds until this worker must act. Containers that wait for others to end need no timer."""
        deadline = self._deadline_seconds()
        return ([] if deadline is None else [deadline]) + self._stopper.seconds_until_due(actions.stop)

    async def _wait(self, seconds: list[float]) -> None:
        waking = asyncio.ensure_future(self._woken.wait())
        timer = asyncio.ensure_future(self._clock.sleep(max(0.0, min(seconds)))) if seconds else None
        try:
            await asyncio.wait({waking, timer} if timer else {waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            if timer:
                timer.cancel()

    def _on_change(self, change: RunChange) -> None:
        name, outcome = change.container.name, change.run.outcome
        if change.run.started and (name, change.run.number) not in self._reported_starts:
            self._reported_starts.add((name, change.run.number))
            self._record_event("Normal", "Started", f"Started container {name}")
        if outcome is None:
            return
        self._prober.stop(name)
        self._stopper.forget(name)
        if outcome.started is None:
            self._record_event("Warning", "Failed", f"Error: {outcome.message}")
        life = self._checkpoint.runtime_statuses({})[name]
        back = life.backoff_end()
        if back is not None and self._desired_state() is DesiredState.RUN and self.pod.spec.restart_policy != "Never":
            message = f"Back-off restarting failed container {name} in pod {full_name(self.pod)}"
            self._record_event("Warning", "BackOff", message)

    # ----------------------------------------------------------------------------------------------- hooks and probes

    def _probe(self) -> None:
        """Start probing new runs, and save the results so far."""
        if self._is_stopping():
            self._prober.stop_liveness()
        for name, (number, fitness) in self._prober.fitness.items():
            if error := self._checkpoint.save_fitness(name, number, fitness):
                self._log_full_disk(error)
        for place, run in self._checkpoint.probed_runs():
            self._prober.start(place, run, self._checkpoint.fitness(place.container.name, run.number))

    # ----------------------------------------------------------------------------------------------------------- ending

    def _was_ended_by_machine(self, change: RunChange) -> bool:
        """Whether the machine ended the run: by SIGTERM from outside, or by a crash if a controller owns the pod."""
        outcome = change.run.outcome
        if outcome is None or self._is_stopping():
            return False
        statuses = self._checkpoint.runtime_statuses({})
        if statuses[change.container.name].fitness.unfit:
            return False
        if change.container.is_sidecar and is_complete(self.pod.spec, statuses):
            return False
        was_lost_with_machine = change.is_late and outcome.was_lost and self.pod.metadata.controller_ref is not None
        return outcome.received_sigterm or was_lost_with_machine

    def _stop_containers(self, actions: ContainerActions, statuses: RuntimeStatuses) -> None:
        for apply, names in ((self._stopper.prepare, actions.stop_later), (self._stopper.stop, actions.stop)):
            for name in names:
                place, unfit = self._checkpoint.latest_run(name), statuses[name].fitness.unfit
                apply(place, self._grace(place.container, unfit), self._killing_message(place.container, unfit))

    def _grace(self, container: Container, unfit: str) -> float:
        grace = float(self.pod.grace_seconds)
        if self._is_deleted:
            return min(grace, VANISHED_GRACE)
        probe_grace = None if self._is_stopping() else probe_grace_seconds(container, unfit)
        return grace if probe_grace is None else float(probe_grace)

    def _killing_message(self, container: Container, unfit: str) -> str:
        """The message of the Killing event, worded as in Kubernetes."""
        if not unfit or self._is_stopping():
            return f"Stopping container {container.name}"
        if unfit == FAILED_POST_START_HOOK:
            return FAILED_POST_START_HOOK
        restarts = container.is_sidecar or self.pod.spec.restart_policy != "Never"
        return f"Container {container.name} failed {unfit}{', will be restarted' if restarts else ''}"

    async def _finish(self) -> list[float]:
        """Release the pod's resources and, if it is terminating, delete it from the API; return when to retry."""
        self._release()
        if self._is_deleted or self._was_delete_sent or not self.pod.metadata.is_being_deleted:
            return []
        await self._status_writer.wait_written()
        options = DeleteOptions(uid=self.pod.metadata.uid, grace_period_seconds=0)
        try:
            await self._context.cluster.delete(KUBELET_PODS, self.pod.metadata.key, options)
            self._was_delete_sent = True
        except (NotFound, Conflict):
            self._is_deleted = True
        except ApiError:
            return [FIRST_PAUSE]
        return []

    def _release(self) -> None:
        if not self._released.is_set():
            self._context.ledger.release(self.pod.metadata.uid)
            try:
                self._context.ports.release(f"{self._context.settings.name}/{self.pod.metadata.uid}")
            except OSError as error:  # The kubelet's maintenance frees them.
                self._log_full_disk(error)
            if self._checkpoint.record.vgpu is not None:
                self._context.registration.report_vgpus(self._context.ledger.vgpus.table())
            self._released.set()

    # ----------------------------------------------------------------------------------------------- status and events

    def _offer_status(self) -> list[float]:
        """Offer the status to the writer; while a container is just starting, wait for more to report."""
        if self._is_deleted or self._checkpoint.is_known_from_api_only:
            return []
        delay = self._starter.last_start + START_SECONDS - self._clock.monotonic()
        if delay > 0 and self._checkpoint.is_starting():
            return [delay]
        record = self._checkpoint.record
        facts = StatusFacts(
            statuses=self._checkpoint.runtime_statuses(self._starter.failures),
            course=self._desired_state(),
            verdict=record.verdict,
            started=from_timestamp(record.started),
            host=self._context.settings.address,
            address=self._context.settings.pod_address,
            environments={name: container.environment for name, container in record.containers.items()},
        )

        def render(pod: Pod) -> Json:
            return pod_status(pod, facts, self._clock.now())

        self._status_writer.offer(render)
        return []

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self._context.recorder.record(self.pod, "Warning" if kind == "Warning" else "Normal", reason, message)


async def _wait_for_any(events: Iterable[asyncio.Event]) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
