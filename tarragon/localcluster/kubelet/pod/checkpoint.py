"""The checkpoint of a pod: its container runs and the kubelet's decisions, on disk for the next kubelet."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from tarragon.base.clock import Clock
from tarragon.kube.codec import parse_time
from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base.files import read_json, write_json
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.pod_lifecycle import (
    ProbeStatus,
    Run,
    RuntimeStatus,
    StartFailure,
    next_backoff,
)
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.network.container_ports import RunContext
from tarragon.localcluster.kubelet.pod import records
from tarragon.localcluster.kubelet.pod.logs import log_tail
from tarragon.localcluster.kubelet.pod.records import PodRecord
from tarragon.localcluster.kubelet.pod.stored_logs import PodFacts, RunFacts
from tarragon.localcluster.kubelet.probes.results import has_probe_or_hook, initial_status
from tarragon.localcluster.kubelet.shim.shim_client import LOST_EXIT_CODE, ShimClient, ShimState
from tarragon.localcluster.kubelet.volumes import mounts

_log = structlog.get_logger()

MESSAGE_BYTES = 4096
REMOVED_PREFIX = ".removed-"
KEPT_RUNS = 2
"""Runs kept for each container, with their logs: the current one and the previous one."""


@dataclass(frozen=True, slots=True)
class RunChange:
    """The latest run of a container has started or ended. `is_late`: it ended before this kubelet started."""

    container: Container
    run: Run
    is_late: bool = False


class PodCheckpoint:
    """The container runs of one pod, and the record of what the kubelet decided for it."""

    def __init__(self, pod: Pod, folder: NodeFolder, shims: ShimClient, clock: Clock) -> None:
        self.pod = pod
        self.folder = folder.pod(pod.metadata.uid)
        self._logs = folder.pod_logs(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        self._shims = shims
        self._clock = clock
        self._runs: dict[str, list[Run]] = {}
        self._ended_before: set[str] = set()
        self._changes: list[RunChange] = []
        self.is_saved = True
        """Whether `record` is on disk."""
        stored = records.load(self.folder)
        self.is_new = stored is None
        self.record = stored or PodRecord(started=clock.now().timestamp(), awaits_admission=True)

    def open(self) -> None:
        """Adopt the runs on disk; for a pod without a folder, restore the runs that its API status mentions."""
        self._runs = {container.name: [] for container in self.pod.spec.all_containers}
        if self.is_known_from_api_only:
            return
        if self.is_new:
            records.save_manifest(self.folder, self.pod)
            self._restore_runs()
            records.save(self.folder, self.record)  # Last: a kubelet killed before it begins anew.
        for container in self.pod.spec.all_containers:
            for number in self.folder.run_numbers(container.name)[-KEPT_RUNS:]:
                self._adopt(container, number)

    @property
    def is_known_from_api_only(self) -> bool:
        """Whether the pod finished before this node recorded it: its API status is all that is known."""
        return self.is_new and self.pod.is_finished

    def _adopt(self, container: Container, number: int) -> None:
        folder = self.folder.run(container.name, number)
        self._shims.adopt(folder)
        if self._shims.is_alive(folder):
            self._ended_before.discard(container.name)  # That was the run before.
        else:
            self._ended_before.add(container.name)
        run = self._read(container, number)
        if (
            run.outcome
            and number >= self.record.container(container.name).number
            and not self._has_recorded_end(container, run)
        ):
            run = Run(number=number, identity=run.identity)  # its end is news: `observe` must report it
        self._runs[container.name].append(run)

    def _has_recorded_end(self, container: Container, run: Run) -> bool:
        return self.record.container(container.name).ended_at(run.number) is not None

    def save(self, record: PodRecord) -> None:
        """Save the record. Raises OSError, and then keeps the old one, so that the caller's step can be repeated."""
        records.save(self.folder, record)
        self.record, self.is_saved = record, True

    def save_or_keep(self, record: PodRecord) -> OSError | None:
        """Save the record, or on a full disk keep it in memory until the next save. Returns why it is not saved."""
        try:
            self.save(record)
        except OSError as error:
            self.record, self.is_saved = record, False
            return error
        return None

    def runtime_statuses(self, troubles: Mapping[str, StartFailure]) -> dict[str, RuntimeStatus]:
        return {container.name: self._life(container.name, troubles) for container in self.pod.spec.all_containers}

    def live_runs(self) -> dict[str, Path]:
        """The folders of live runs, by container name."""
        latest = {name: runs[-1] for name, runs in self._runs.items() if runs}
        return {name: self.folder.run(name, run.number) for name, run in latest.items() if run.is_alive}

    def is_starting(self) -> bool:
        return any(runs and runs[-1].is_alive and runs[-1].started is None for runs in self._runs.values())

    def observe(self) -> list[RunChange]:
        """Read the state of every live run; return what changed since the last call.

        The ends are in `record`, which the caller saves, together with what follows from them. Raises OSError; the next
        call returns what this one has seen.
        """
        for container in self.pod.spec.all_containers:
            runs = self._runs[container.name]
            if runs and runs[-1].is_alive:
                self._observe_run(container, runs)
        changes, self._changes = self._changes, []
        if changes:
            self.write_facts()
        return changes

    def _observe_run(self, container: Container, runs: list[Run]) -> None:
        number = runs[-1].number
        folder = self.folder.run(container.name, number)
        state = self._shims.state(folder)
        if state and state.void:
            # The next attempt uses the same path, while this attempt's shim may still be starting.
            remove_folder(folder)
            runs.pop()
            return
        observed = self._read(container, number)
        if observed == runs[-1]:
            return
        if observed.outcome:
            record = self.record.container(container.name)
            ended = replace(record, number=number, ended=self._clock.now().timestamp())
            self.record, self.is_saved = self.record.with_container(container.name, ended), False
        runs[-1] = observed
        is_late = container.name in self._ended_before
        self._ended_before.discard(container.name)
        self._changes.append(RunChange(container, observed, is_late))

    def next_number(self, name: str) -> int:
        runs = self._runs[name]
        return runs[-1].number + 1 if runs else 0

    def begin(self, container: Container, identity: str, environment: Path, threads: int) -> None:
        """Record a run that is about to start. Its back-off is saved before, so that it is never lost.

        Raises OSError, and then there is no such run.
        """
        now, name = self._clock.now(), container.name
        runs, number = self._runs[name], self.next_number(name)
        backoff = next_backoff(self._life(name, {}), now)
        record = replace(self.record.container(name), environment=str(environment), threads=threads)
        if backoff:
            record = replace(record, delay=backoff.delay, since=backoff.since.timestamp())
        if record != self.record.container(name):
            self.save(self.record.with_container(name, record))
        runs = [*runs, Run(number=number, identity=identity)]
        for old in runs[:-KEPT_RUNS]:
            remove_folder(self.folder.run(name, old.number))
            self._logs.remove(name, old.number)
        self._runs[name] = runs[-KEPT_RUNS:]

    def drop_run(self, name: str) -> None:
        """Drop the run of the last `begin`, as its shim could not be started."""
        run = self._runs[name].pop()
        remove_folder(self.folder.run(name, run.number))

    def remove(self) -> None:
        """Remove the pod's folder. The logs stay; their pruning knows the pod for removed by its folder, too."""
        if not self.is_known_from_api_only:
            self.write_facts(removed=self._clock.now().timestamp())
        remove_folder(self.folder.path)

    def fitness(self, name: str, number: int) -> ProbeStatus:
        """What hooks and probes have found out about a run so far."""
        record = self.record.container(name)
        return record.fitness if number == record.attended else initial_status(self._container(name))

    def _life(self, name: str, troubles: Mapping[str, StartFailure]) -> RuntimeStatus:
        runs, record = self._runs[name], self.record.container(name)
        run = runs[-1] if runs else None
        return RuntimeStatus(
            run=run,
            previous=runs[-2] if len(runs) > 1 else None,
            ended=record.ended_at(run.number) if run and run.outcome else None,
            backoff=record.backoff,
            start_failure=troubles.get(name),
            fitness=self.fitness(name, run.number) if run else ProbeStatus(),
        )

    def probed_runs(self) -> Iterator[tuple[RunContext, Run]]:
        """The live runs of containers with probes or a postStart hook."""
        for container in self.pod.spec.all_containers:
            runs = self._runs[container.name]
            if runs and runs[-1].is_alive and runs[-1].started is not None and has_probe_or_hook(container):
                yield self.latest_run(container.name), runs[-1]

    def latest_run(self, name: str) -> RunContext:
        """The latest run of a container."""
        container = self._container(name)
        number = self._runs[name][-1].number
        return RunContext(pod=self.pod, container=container, number=number, folder=self.folder.run(name, number))

    def _container(self, name: str) -> Container:
        return next(each for each in self.pod.spec.all_containers if each.name == name)

    def save_fitness(self, name: str, number: int, fitness: ProbeStatus) -> OSError | None:
        """Save the probe and hook results of a run, if they changed, or keep them. Returns why they are not saved."""
        before = self.record.container(name)
        after = replace(before, attended=number, fitness=fitness)
        return None if after == before else self.save_or_keep(self.record.with_container(name, after))

    def _read(self, container: Container, number: int) -> Run:
        folder = self.folder.run(container.name, number)
        state = self._shims.state(folder)
        message = ""
        if state and state.has_ended and not state.error:
            message = self._termination_message(container, number, state)
        return records.run_from_state(number, state, message)

    def _termination_message(self, container: Container, number: int, state: ShimState) -> str:
        """The container's termination message: from its file, else from its log, as its policy says."""
        try:
            with (self.folder.run(container.name, number) / "termination").open("rb") as file:
                message = file.read(MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            message = ""
        if message or state.code == 0 or container.termination_message_policy != "FallbackToLogsOnError":
            return message
        return log_tail(self._logs.log(container.name, number))

    def write_facts(self, removed: float = 0.0) -> None:
        """Write the facts that are kept with the logs, if the disk is not full: no pod is held up for them."""
        try:
            create_private_folder(self._logs.path)
            write_json(self._logs.pod_facts, self._facts(removed))
        except OSError as error:
            _log.error(
                "the facts about a pod's logs cannot be written", pod=str(self.pod.metadata.key), error=str(error)
            )

    def _facts(self, removed: float) -> PodFacts:
        metadata = self.pod.metadata
        stored = read_json(self._logs.pod_facts, PodFacts)
        created = stored.created if stored else self._clock.now().timestamp()
        return PodFacts(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            node=self.pod.spec.node_name,
            labels=metadata.labels,
            owner=metadata.controller_ref.uid if metadata.controller_ref else "",
            controller=metadata.controller_ref,
            created=metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else created,
            removed=removed,
            runs=[
                _run_facts(name, run, self.record.container(name).threads if run is runs[-1] else 0)
                for name, runs in self._runs.items()
                for run in runs
            ],
        )

    def _restore_runs(self) -> None:
        """Record the runs in the pod's API status, whose folders were removed. Those that had not ended are lost."""
        reported = self.pod.status
        for status in (reported.get("containerStatuses") or []) + (reported.get("initContainerStatuses") or []):
            identity = str(status.get("containerID") or "").removeprefix("tarragon://")
            if identity:
                folder = self.folder.run(status["name"], int(status.get("restartCount") or 0))
                create_private_folder(folder.parent)
                folder.mkdir(mode=0o700, exist_ok=True)
                write_json(folder / "state.json", _restored(identity, status, self._clock))


def remove_folder(folder: Path) -> None:
    """Remove a folder. It is renamed first, so that an interrupted removal leaves no half of it under its name."""
    renamed = folder.with_name(f"{REMOVED_PREFIX}{folder.name}")
    mounts.remove_tree(renamed)  # left by a removal that was interrupted
    with contextlib.suppress(FileNotFoundError):
        folder.rename(renamed)
    mounts.remove_tree(renamed)


def _restored(identity: str, status: Mapping[str, object], clock: Clock) -> ShimState:
    """The shim state of a run that only the API status mentions; lost unless the status says how it ended."""
    state = status.get("state")
    ended = msgspec.convert(state, _ContainerState).terminated if isinstance(state, dict) else None
    now = int(clock.now().timestamp() * 1_000_000_000)
    if ended is None:
        return ShimState(id=identity, phase="exited", lost=True, code=LOST_EXIT_CODE, finished=now)
    finished = int(parse_time(ended.finished_at).timestamp() * 1_000_000_000) if ended.finished_at else now
    return ShimState(id=identity, phase="exited", code=ended.exit_code, started=finished, finished=finished)


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    finished_at: str = ""


class _ContainerState(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


def _run_facts(name: str, run: Run, threads: int) -> RunFacts:
    outcome = run.outcome
    return RunFacts(
        container=name,
        number=run.number,
        started=run.started.timestamp() if run.started else 0.0,
        finished=outcome.finished.timestamp() if outcome else 0.0,
        code=outcome.code if outcome else None,
        reason=outcome.reason if outcome else "",
        threads=threads,
    )


def new_run_identity(node: str, uid: str, container: str, number: int) -> str:
    """The identity of a run. It begins with the node's identity, by which all processes of a node are found."""
    return f"{node}.{hashlib.sha256(f'{uid}/{container}/{number}'.encode()).hexdigest()[:40]}"
