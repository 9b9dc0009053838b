"""Runs the TFJob of a manifest as plain processes, as the baseline for the cost and the results of `tarragon run`.

It reads just enough of the manifest to start the same programs with the same arguments, files and TF_CONFIG as a
cluster would. It uses nothing of Tarragon: no API, no scheduler, no operator.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import yaml

# For many replicas on one machine without GPUs: threads for one core each. Variables of the manifest override these.
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
)
PORTS = range(20000, 30000)  # below the kernel's range of ephemeral ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a job. A replica that was started twice has two exit codes and one log of both runs."""

    seconds: float
    exit_codes: Mapping[str, Sequence[int]]
    logs: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(slots=True)
class Replica:
    """A replica with all its runs. The condition of its job guards it."""

    program: Program
    restarts_left: int
    process: subprocess.Popen[str] | None = None
    thread: threading.Thread | None = None
    log: list[str] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)


class PlainProcesses:
    """The replicas of one job. Leaving the context stops all replicas that still run."""

    def __init__(self, manifest: Path, folder: Path, options: Mapping[str, str], restarts: int = 0) -> None:
        """Prepare the replicas of a manifest, whose volumes go into `folder`.

        `options` replaces values on the command lines (`{"--steps": "800"}`). A replica that fails is restarted
        immediately, up to `restarts` times.
        """
        programs = dict(programs_of(manifest, folder, options))
        self.leader = "chief-0" if "chief-0" in programs else "worker-0"
        self.started_at = time.monotonic()
        self._replicas = {name: Replica(program, restarts) for name, program in programs.items()}
        self._changed = threading.Condition()
        self._ending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def names(self) -> Sequence[str]:
        """All replicas of the manifest, with as many workers as its max-instances."""
        return tuple(self._replicas)

    def start(self, *names: str) -> None:
        for name in names:
            replica = self._replicas[name]
            if replica.thread and replica.thread.is_alive():
                raise ValueError(f"{name} runs already")
            replica.thread = threading.Thread(target=self._run, args=(replica,), name=name)
            replica.thread.start()

    def signal(self, name: str, number: signal.Signals) -> None:
        with self._changed:
            process = self._replicas[name].process
        if process is None:
            raise ValueError(f"{name} does not run")
        os.killpg(process.pid, number)

    def wait(self, name: str, timeout: float) -> int:
        """Wait until the replica has ended and is not restarted. Returns the exit code of its last run."""
        replica = self._replicas[name]
        if replica.thread is None:
            raise ValueError(f"{name} was never started")
        replica.thread.join(timeout)
        if replica.thread.is_alive():
            raise TimeoutError(f"{name} still runs after {timeout:g} s:\n{self._tail(name)}")
        return replica.exit_codes[-1]

    def wait_for_line(self, name: str, pattern: str, timeout: float, after: int = 0) -> re.Match[str]:
        """Wait for the first line of the replica's log, after `after` lines, in which the pattern is found."""
        log = self._replicas[name].log
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for line in log[after:]:
                    if match := re.search(pattern, line):
                        return match
                after = len(log)
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{name} has not printed {pattern!r} in {timeout:g} s:\n{self._tail(name)}")

    def lines(self, name: str) -> int:
        """The number of lines that the replica has printed so far."""
        return len(self._replicas[name].log)

    def stop(self) -> None:
        """Stop all running replicas with SIGTERM, and after five seconds with SIGKILL."""
        with self._changed:
            self._ending = True
        for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
            running = {name: r.thread for name, r in self._replicas.items() if r.thread and r.thread.is_alive()}
            for name in running:
                try:
                    self.signal(name, number)
                except (ValueError, ProcessLookupError):
                    continue  # it has exited in the meantime
            deadline = None if patience is None else time.monotonic() + patience
            for thread in running.values():
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def result(self) -> Result:
        with self._changed:
            started = {name: replica for name, replica in self._replicas.items() if replica.thread}
            return Result(
                seconds=time.monotonic() - self.started_at,
                exit_codes={name: tuple(replica.exit_codes) for name, replica in started.items()},
                logs={name: tuple(replica.log) for name, replica in started.items()},
            )

    def _run(self, replica: Replica) -> None:
        while True:
            with self._changed:
                if self._ending:
                    return
                process = subprocess.Popen(
                    replica.program.arguments,
                    env={**os.environ, **replica.program.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    process_group=0,
                )
                replica.process = process
            with process:
                for line in process.stdout or ():
                    with self._changed:
                        replica.log.append(line.rstrip("\n"))
                        self._changed.notify_all()
            with self._changed:
                replica.process = None
                code = process.returncode
                replica.exit_codes.append(code if code >= 0 else 128 - code)
                self._changed.notify_all()
                if code == 0 or replica.restarts_left == 0:
                    return
                replica.restarts_left -= 1

    def _tail(self, name: str) -> str:
        return "\n".join(self._replicas[name].log[-20:])


def programs_of(manifest: Path, folder: Path, options: Mapping[str, str]) -> Iterator[tuple[str, Program]]:
    """The program of each replica, with max-instances workers. Writes the config maps of the manifest into `folder`."""
    documents: list[Any] = list(yaml.safe_load_all(manifest.read_text()))
    write_config_maps(documents, folder)
    (job,) = (document for document in documents if document["kind"] == "TFJob")
    specs = {kind.lower(): spec for kind, spec in job["spec"]["tfReplicaSpecs"].items()}
    sizes = {kind: spec["replicas"] for kind, spec in specs.items()}
    sizes["worker"] = max(sizes["worker"], job["spec"].get("max-instances", 0))
    ports = iter(free_ports(sum(sizes.values())))
    cluster = {kind: [f"127.0.0.1:{next(ports)}" for _ in range(size)] for kind, size in sizes.items()}
    for kind, spec in specs.items():
        (container,) = spec["template"]["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in spec["template"]["spec"].get("volumes", ())}
        mounts = {mount["mountPath"]: source(volumes[mount["name"]], folder) for mount in container["volumeMounts"]}
        arguments = [moved(word, mounts) for word in (*container["command"], *container.get("args", ()))]
        given = {entry["name"]: moved(entry["value"], mounts) for entry in container.get("env", ())}
        for index in range(sizes[kind]):
            task = {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
            alone = sum(sizes.values()) == 1
            tf_config = {} if alone else {"TF_CONFIG": json.dumps(task)}
            yield (
                f"{kind}-{index}",
                Program(arguments=replaced(arguments, options), environment={**ENVIRONMENT, **given, **tf_config}),
            )


def write_config_maps(documents: Sequence[Any], folder: Path) -> None:
    for document in documents:
        if document["kind"] == "ConfigMap":
            folder_of_map = folder / "config-maps" / document["metadata"]["name"]
            folder_of_map.mkdir(parents=True, exist_ok=True)
            for name, text in document["data"].items():
                (folder_of_map / name).write_text(text)


def source(volume: Any, folder: Path) -> Path:
    """The folder of a volume. The folder of a claim keeps its files from one job to the next."""
    if "configMap" in volume:
        return folder / "config-maps" / str(volume["configMap"]["name"])
    if "downwardAPI" in volume:
        return folder / "nothing"  # there is no pod whose fields could be in it
    claim = folder / "claims" / str(volume["persistentVolumeClaim"]["claimName"])
    claim.mkdir(parents=True, exist_ok=True)
    return claim


def moved(word: str, mounts: Mapping[str, Path]) -> str:
    """Replace a path in a container by the path in the folder of the volume that is mounted there."""
    for path, folder in mounts.items():
        if word == path or word.startswith(path + "/"):
            return f"{folder}{word.removeprefix(path)}"
    return sys.executable if word == "python" else word


def replaced(arguments: Sequence[str], options: Mapping[str, str]) -> Sequence[str]:
    previous = ("", *arguments)
    return tuple(options.get(before, word) for before, word in zip(previous, arguments, strict=False))


def free_ports(count: int) -> Sequence[int]:
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free; stop what uses them")


def requested_replicas(manifest: Path) -> Sequence[str]:
    (job,) = (document for document in yaml.safe_load_all(manifest.read_text()) if document["kind"] == "TFJob")
    specs = job["spec"]["tfReplicaSpecs"]
    return [f"{kind.lower()}-{index}" for kind, spec in specs.items() for index in range(spec["replicas"])]


def run_bare(manifest: Path, folder: Path, options: Mapping[str, str], timeout: float = 110) -> Result:
    """Run the job as a shell script would: start all replicas, wait for the leader, stop the others."""
    with PlainProcesses(manifest, folder, options) as job:
        job.start(*requested_replicas(manifest))
        job.wait(job.leader, timeout)
        done = job.result()
        job.stop()
        ended = job.result()
    return Result(seconds=done.seconds, exit_codes=ended.exit_codes, logs=ended.logs)


def main() -> None:
    manifest = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/tensorflow/ps.yaml")
    with tempfile.TemporaryDirectory() as folder:
        result = run_bare(manifest, Path(folder), {})
    leader = "chief-0" if "chief-0" in result.logs else "worker-0"
    print(f"{manifest} as bare processes: {result.seconds:.1f} s; {leader} ends with: {result.logs[leader][-1]}")


if __name__ == "__main__":
    main()
