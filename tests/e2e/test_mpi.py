"""MPIJobs on this machine: every implementation and generation, and what is killed while they run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.user import User, eventually
from tests.e2e.watcher import living_server
from tests.mpi_environments import mpi_environment

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.timeout(400)]

HELLO = """
import os
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
# At once: Hydra joins the pieces of lines as they come.
os.write(1, f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size} knows {total}\\n".encode())
"""
WHERE = """
import os
from pathlib import Path
from mpi4py import MPI
# That of the daemon: Hydra gives its ranks the environment of mpirun.
environment = Path(f"/proc/{os.getppid()}/environ").read_text().split(chr(0))
pod = next(variable for variable in environment if variable.startswith("HOSTNAME=")).partition("=")[2]
os.write(1, f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size} in {pod}\\n".encode())
"""
LONG = """
import os, time
from mpi4py import MPI
for step in range(40):
    while step == 30 and not os.path.exists({!r}):
        time.sleep(0.02)
    MPI.COMM_WORLD.allreduce(step)
    if MPI.COMM_WORLD.rank == 0:
        print("step", step, flush=True)
    time.sleep(0.1)
MPI.COMM_WORLD.Barrier()
print("rank", MPI.COMM_WORLD.rank, "is done", flush=True)
"""
"""It does not end before there is a certain file."""
RANKS = {f"rank {rank} of 4 knows 6" for rank in range(4)}
KILLS = ("worker", "launcher", "cluster")


def container(name: str, command: Sequence[str] = ()) -> dict[str, Any]:
    return {"name": name, "image": "mpi", **({"command": [*command]} if command else {})}


def template(*words: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container(*words)]}}


def mpijob(version: str, command: Sequence[str], workers: int = 4, **spec: Any) -> str:
    specs = {
        "Launcher": {"template": template("launcher", command)},
        "Worker": {"replicas": workers, "template": template("worker")},
    }
    body = {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": "pi"}}
    return json.dumps({**body, "spec": {"mpiReplicaSpecs": specs, **spec}})


def program(user: User, text: str) -> str:
    """A file of the user, by its whole path: ranks begin in the folder of their pod."""
    return str(user.folder / user.file("program.py", text))


def said(out: str) -> set[str]:
    """The ranks that have met all others."""
    return {rank for rank in RANKS if rank in out}


@pytest.mark.parametrize(
    ("implementation", "environment"), [("OpenMPI", "openmpi"), ("MPICH", "mpich"), ("Intel", "impi")]
)
def test_four_ranks_meet_whatever_the_implementation_of_mpi(user: User, implementation: str, environment: str) -> None:
    folder = mpi_environment(environment)
    command = ["mpirun", "-n", "4", "python", program(user, HELLO)]
    file = user.file("pi.json", mpijob("v2beta1", command, mpiImplementation=implementation))

    ended = user.run(file, "--image-env", f"mpi={folder}")

    assert ended.code == 0, ended.out + ended.err
    assert "Succeeded  pi" in ended.out
    assert said(ended.out) == RANKS


def test_a_script_that_imports_mpi4py_runs_on_several_ranks(user: User) -> None:
    user.file("hello.py", HELLO)
    image = f"registry.example.com/*={mpi_environment('openmpi')}"

    ended = user.run("hello.py", "--workers", "4", "--image-env", image)

    assert ended.code == 0, ended.out + ended.err
    assert said(ended.out) == RANKS


@pytest.mark.parametrize(
    ("version", "declared", "environment"),
    [
        ("v2beta1", {"mpiImplementation": "Intel"}, "openmpi"),
        ("v2beta1", {"mpiImplementation": "MPICH"}, "openmpi4"),
        ("v2beta1", {"mpiImplementation": "MPICH"}, "impi"),
        ("v2beta1", {}, "mpich"),
        ("v2beta1", {}, "impi"),
        ("v1", {}, "openmpi4"),
        ("v1", {}, "mpich"),
        ("v1", {}, "impi"),
    ],
)
def test_ranks_run_in_the_workers_whatever_mpi_the_manifest_names(
    user: User, version: str, declared: dict[str, str], environment: str
) -> None:
    command = ["mpirun", "-n", "4", "python", program(user, WHERE)]
    file = user.file("pi.json", mpijob(version, command, workers=2, slotsPerWorker=2, **declared))

    ended = user.run(file, "--image-env", f"mpi={mpi_environment(environment)}")

    assert ended.code == 0, ended.out + ended.err
    places = {f"rank {rank} of 4 in pi-worker-{rank // 2}" for rank in range(4)}
    assert {place for place in places if place in ended.out} == places, ended.out


def test_open_mpi_keeps_its_sessions_in_the_folder_of_the_launcher(user: User) -> None:
    """In the machine's own, what killed ones have left keeps later ones with the same process ID from starting."""
    ranks = [sys.executable, "-c", "import os; print('session', os.environ['PMIX_SERVER_TMPDIR'])"]
    file = user.file("pi.json", mpijob("v2beta1", ["mpirun", "-n", "2", *ranks], workers=2))

    ended = user.run(file, "--image-env", f"mpi={mpi_environment('openmpi')}")

    assert ended.code == 0, ended.out + ended.err
    sessions = re.findall(r"session (.+)", ended.out)
    assert len(sessions) == 2
    assert all(each.startswith(f"{user.home}/node/") for each in sessions), sessions


def test_an_older_generation_reaches_its_workers_without_ssh(user: User) -> None:
    command = ["mpirun", "-n", "4", "python", program(user, HELLO)]
    ended = user.run(user.file("pi.json", mpijob("v1", command)), "--image-env", f"mpi={mpi_environment('openmpi')}")

    assert ended.code == 0, ended.out + ended.err
    assert said(ended.out) == RANKS


def seeds_job(gpus: int, command: Sequence[str]) -> str:
    """The MPIJob of document 004, with a command for the image that this machine does not have."""
    spec = {"GPUs": gpus, "template": template("tensorflow-benchmarks", command)}
    body = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "metadata": {"name": "pi"}}
    return json.dumps({**body, "spec": spec})


def test_the_job_of_document_004_runs_on_gpus_of_a_local_node_and_without_any(user: User) -> None:
    command = ["mpirun", "-n", "4", "python", program(user, HELLO)]
    file = user.file("pi.json", seeds_job(4, command))
    environment = ("--image-env", f"mpi={mpi_environment('openmpi')}")

    ended = user.run(file, "--cpu-only", *environment)
    assert ended.code == 0, ended.out + ended.err
    assert said(ended.out) == RANKS
    assert user("down").code == 0

    with_gpus = user.start("up", "--node", "name=big,cpu=8,memory=8Gi,nvidia.com/gpu=4")
    eventually(lambda: living_server(user.home))
    ended = user.run(file, "--replace", *environment)
    assert ended.code == 0, ended.out + ended.err
    assert said(ended.out) == RANKS
    with_gpus.signal(signal.SIGINT)
    with_gpus.ended()


def pod_processes(user: User, pod: str) -> Sequence[int]:
    """What runs in a pod, and what other pods have started in it."""
    mark = f"HOSTNAME={pod}".encode()
    return [pid for pid in user.processes() if mark in environment_of(pid).split(b"\0")]


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def kill(user: User, what: str, moments: random.Random) -> None:
    if what == "cluster":
        server = living_server(user.home)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        return
    pod = "pi-launcher" if what == "launcher" else f"pi-worker-{moments.randrange(2)}"
    for pid in pod_processes(user, pod):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def state(user: User) -> Mapping[str, Any]:
    """The job's state once it has ended; empty before, and while no cluster runs."""
    found = user("get", "mpijob/pi", "-o", "json")
    read: dict[str, Any] = {} if found.code else json.loads(found.out).get("status", {}).get("tarragon", {})
    return read if read.get("state") in {"Succeeded", "Failed"} else {}


def launcher_log(user: User) -> str:
    return user("logs", "mpijob/pi", "--replica", "launcher").out


@pytest.mark.parametrize("what", KILLS)
def test_a_job_whose_parts_are_killed_ends_with_its_ranks_and_never_before(user: User, what: str) -> None:
    moments = random.Random(what)
    command = ["mpirun", "-n", "2", "python", program(user, LONG.format(str(user.folder / "killed")))]
    spec = {"launcherCreationPolicy": "WaitForWorkersReady"}
    file = user.file("pi.json", mpijob("v2beta1", command, workers=2, **spec))
    assert user("submit", file, "--image-env", f"mpi={mpi_environment('openmpi')}").code == 0
    moment = f"step {moments.randrange(3, 20)}\n"
    eventually(lambda: moment in launcher_log(user))

    kill(user, what, moments)
    user.file("killed", "")
    again = None
    if what == "cluster":
        eventually(lambda: living_server(user.home) is None)
        again = user.start("up")
    ended = eventually(lambda: state(user))

    assert ended["state"] == "Succeeded"
    for rank in range(2):
        assert f"rank {rank} is done" in launcher_log(user)
    assert (ended["restarts"]["total"] > 0) is (what != "cluster")
    if again is not None:
        again.signal(signal.SIGINT)
        again.ended()
