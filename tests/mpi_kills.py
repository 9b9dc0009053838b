"""An MPIJob whose processes are killed, and what its status must say afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tarragon.job.conditions import BACKOFF_LIMIT_EXCEEDED
from tarragon.job.phase import Phase
from tarragon.job.status import RestartRecord
from tarragon.localcluster.home.lock import process_start
from tests.conftest import ROOT
from tests.e2e.user import PATIENCE
from tests.e2e.watcher import StateWatcher, Watcher

Json = dict[str, Any]
LOG = logging.getLogger(__name__)
PROGRAMS = ROOT / "tests" / "data" / "programs"
WORKERS = 3
STEPS = 40
"""Of a tenth of a second each."""
MARK = "KILLED_JOB"
"""A variable of all processes of the job: its folder."""
LAUNCHER = "launcher-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledJob:
    """A job of three workers whose launcher and ranks write into a folder that they have started."""

    folder: Path
    name: str
    limit: int = 6
    cleans: str = "Running"
    fails_at: int = STEPS

    def manifest(self) -> Json:
        ranks = [str(PROGRAMS / "adding_ranks.py"), str(self.folder), str(STEPS), str(self.fails_at)]
        mpirun = ["mpirun", "-n", str(WORKERS), "python", *ranks]
        alone = ["python", str(PROGRAMS / "alone.py"), str(self.folder), "launcher"]
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": self.name},
            "spec": {
                "runPolicy": {"cleanPodPolicy": self.cleans, "backoffLimit": self.limit},
                "mpiReplicaSpecs": {
                    "Launcher": {"template": self._template([*alone, *mpirun])},
                    "Worker": {"replicas": WORKERS, "template": self._template()},
                },
            },
        }

    def _template(self, command: Sequence[str] = ()) -> Json:
        container = {"name": "main", "image": "mpi", "env": [{"name": MARK, "value": str(self.folder)}]}
        return {"spec": {"containers": [{**container, **({"command": [*command]} if command else {})}]}}

    def pod(self, replica: str) -> str:
        return f"{self.name}-launcher" if replica == LAUNCHER else f"{self.name}-{replica}"

    def processes(self, replica: str) -> Mapping[int, str]:
        """What runs in the replica's pod, with what other pods have started there."""
        marks = {f"{MARK}={self.folder}".encode(), f"HOSTNAME={self.pod(replica)}".encode()}
        return {pid: command for pid, environment, command in _processes() if marks <= environment}

    def notes(self, file: str) -> Counter[str]:
        path = self.folder / file
        return Counter(path.read_text().split() if path.exists() else ())

    def result(self) -> list[str]:
        total = STEPS * sum(range(WORKERS))
        return [f"rank {rank} of {WORKERS}, sum {total}" for rank in range(WORKERS)]


def _processes() -> Iterator[tuple[int, frozenset[bytes], str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = frozenset((folder / "environ").read_bytes().split(b"\0"))
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue
        yield int(folder.name), environment, command


def results(log: str) -> list[str]:
    """Of the last launcher; one that had printed them may have been killed before it ended."""
    last = log.rpartition("launcher begins\n")[2]
    return sorted(re.findall(r"^(?:\[launcher-0\] )?(rank \d+ of \d+, sum \d+)$", last, re.MULTILINE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A job that runs, who watches it, and what was killed."""

    job: KilledJob
    pods: Watcher
    states: StateWatcher
    dice: random.Random
    killed: Counter[str] = field(default_factory=Counter)

    def kill(self, replica: str) -> None:
        """All its processes, or only the first one, which the others do not survive."""
        starts = {pid: start for pid in self.job.processes(replica) if (start := process_start(pid))}
        found = sorted(starts, key=lambda pid: (int(starts[pid]), pid))
        for pid in found if self.dice.random() < 0.7 else found[:1]:
            self._kill(pid, replica)

    def kill_rank(self) -> None:
        """One of the program itself, whose end is the launcher's failure."""
        processes = [each for replica in self._workers for each in self.job.processes(replica).items()]
        ranks = sorted(pid for pid, command in processes if command.startswith("python "))
        if ranks:
            self._kill(self.dice.choice(ranks), LAUNCHER)

    def _kill(self, pid: int, replica: str) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed[replica] = 1

    async def until(self, claim: Callable[[], bool]) -> None:
        """Fails with what there is."""
        deadline = time.monotonic() + PATIENCE
        while not claim():
            assert time.monotonic() < deadline, self.told()
            await asyncio.sleep(0.05)  # noqa: TID251 - processes tell nobody here that they have ended

    @property
    def launchers(self) -> int:
        return self.pods.added(self.job.name)[LAUNCHER]

    def is_cleaned_up(self) -> bool:
        """No pods, and nothing in them, but what the clean-up policy leaves: idle workers, and pods that had ended."""
        workers = {self.job.pod(replica) for replica in self._workers} if self.job.cleans == "None" else set()
        ended = {self.job.pod(replica) for replica in self.killed} if self.was_late else set()
        left = [command for replica in self._all for command in self.job.processes(replica).values()]
        busy = [command for command in left if not _is_idle(command)]
        kept = {self.job.pod(LAUNCHER), *workers}
        return kept <= self.pods.there(self.job.name) <= kept | ended and not busy and (bool(workers) or not left)

    @property
    def was_late(self) -> bool:
        """Whether the launcher had done all by the time of the kill."""
        return self.launchers == 1

    def told(self) -> str:
        """What a person wants to see when a test fails."""
        parts = [f"{pid} {command}" for replica in self._all for pid, command in self.job.processes(replica).items()]
        restarts = [f"{replica} {record}" for replica, record in self.states.status.restarts.items()]
        story = [f"{kind} {name} {uid[:4]}" for kind, name, uid in self.pods.pod_events if kind != "MODIFIED"]
        told = [f"killed {dict(self.killed)}, left {self.pods.there(self.job.name)}", *parts, *restarts, *story]
        return "\n".join([*told, *map(str, self.states.status.conditions), str(self.states.states)])

    def never_went_back(self) -> bool:
        """Whether nothing came after a final state."""
        return not any(state.is_final for state in self.states.states[:-1])

    def check_end(self, log: str, state: Phase) -> None:
        """The state is the last one, success is what all ranks say, and nothing ran twice at a time."""
        assert self.states.states[-1] is state, self.told()
        assert self.never_went_back(), self.told()
        assert self.job.notes("twice") == {}, self.told()
        assert self.job.notes("started")["launcher"] <= self.launchers, self.told()
        assert state is not Phase.SUCCEEDED or results(log) == self.job.result(), log + self.told()
        launchers = self.states.status.replica_statuses["Launcher"]  # type: ignore[index]
        ended = (0, 1, 0) if state is Phase.SUCCEEDED else (0, 0, 1)
        assert (launchers.active, launchers.succeeded, launchers.failed) == ended, self.told()
        LOG.info("%s: %s, %s", self.job.name, dict(self.killed), [each.value for each in self.states.states])

    def check_only_launcher(self, log: str) -> None:
        """It was killed, and may not be started again: the job has failed because of that, unless it was too late."""
        state = self.states.status.phase
        self.check_end(log, state if results(log) == self.job.result() else Phase.FAILED)
        assert self.launchers == 1, self.told()
        assert self.killed[LAUNCHER] or state is Phase.SUCCEEDED, self.told()
        if state is Phase.FAILED:
            self.check_limit("launcher-0: exit code 137 (killed: SIGKILL")

    def check_limit(self, why: str) -> None:
        failed = self.states.status.condition("Failed")
        assert failed is not None, self.told()
        assert failed.reason == BACKOFF_LIMIT_EXCEEDED, self.told()
        assert why in failed.message, self.told()

    def check_restarts(self, log: str) -> None:
        """What was killed is counted once, and what followed from it is not."""
        records = self._balanced(log)
        failures = {replica: record.counted_for_backoff_limit for replica, record in records.items()}
        for replica, count in failures.items():
            assert count == self.killed[replica] or (self.was_late and count == 0), replica + log + self.told()
        lost = sum(self.killed[replica] for replica in self._workers)
        assert records[LAUNCHER].disruptions <= lost, log + self.told()

    def _balanced(self, log: str) -> Mapping[str, RestartRecord]:
        """Every pod that was ever made, and every restart in one, is in the status."""
        said = {str(replica): record for replica, record in self.states.status.restarts.items()}
        made, restarted = self.pods.added(self.job.name), self.pods.restarted(self.job.name)
        for replica in self._all:
            record = said.setdefault(replica, RestartRecord())
            # What ends after the launcher is counted, but not replaced.
            assert made[replica] == 1 + record.pod_restarts - record.is_pod_end_counted, replica + log + self.told()
            assert restarted[replica] == record.container_restarts, replica + log + self.told()
        return said

    @property
    def _workers(self) -> Sequence[str]:
        return [f"worker-{index}" for index in range(WORKERS)]

    @property
    def _all(self) -> Sequence[str]:
        return [LAUNCHER, *self._workers]


def _is_idle(command: str) -> bool:
    """Of the sleeper that runs in the place of sshd."""
    return command.startswith(("/bin/sh -c trap", "sleep "))
