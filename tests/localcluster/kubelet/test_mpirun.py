"""The mpirun of each implementation, unmodified, in one pod, with ranks in others."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.base import processes
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import World, state, terminated
from tests.mpi_environments import mpi_environment

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

IMPLEMENTATIONS = ["openmpi", "openmpi4", "mpich", "impi"]
SLOTS = {"openmpi": " slots=2", "openmpi4": " slots=2", "mpich": ":2", "impi": ":2"}
"""The lines of a host file behind the name of a host."""
OPTION = {"openmpi": "--hostfile", "openmpi4": "--hostfile", "mpich": "-f", "impi": "-f"}
WORKERS = 2
HELLO = """
import os
from pathlib import Path
from mpi4py import MPI
world = MPI.COMM_WORLD
# That of the daemon: MPICH gives its ranks the environment of mpirun.
environment = Path(f"/proc/{os.getppid()}/environ").read_text().split(chr(0))
pod = next(variable for variable in environment if variable.startswith("HOSTNAME="))
line = f"rank {world.rank} of {world.size} {pod} sum {world.allreduce(world.rank)}\\n"
os.write(1, line.encode())  # at once, as all ranks share a stream
"""
SPIN = """
import os, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.barrier()
if world.rank == 3:
    print("all are there", flush=True)
while True:
    world.barrier()
"""


async def start(world: World, implementation: str, program: str, **spec: Any) -> None:
    """Start two workers with two slots each, and a launcher with four ranks of a Python program."""
    environment = mpi_environment(implementation)
    world.start_kubelet(environments={"example/train:1": environment})
    for index in range(WORKERS):
        await world.create(
            f"pi-worker-{index}",
            container_json(command=["/usr/sbin/sshd", "-De"]),
            hostname=f"pi-worker-{index}",
            subdomain="pi",
        )
        await world.phase("Running", f"pi-worker-{index}")
    hosts = "\n".join(f"pi-worker-{index}.pi.default.svc{SLOTS[implementation]}" for index in range(WORKERS))
    (world.folder / "program.py").write_text(program)
    script = f"""
    printf '%s\\n' "$HOSTS" > hosts
    exec mpirun -n 4 {OPTION[implementation]} hosts python {world.folder}/program.py
    """
    env = [{"name": "HOSTS", "value": hosts}]
    await world.run(script, "pi-launcher", restartPolicy="Never", container={"env": env}, **spec)


async def ended(world: World) -> int:
    """The exit code of the launcher."""
    pod = await world.until(lambda pod: "terminated" in state(pod), "pi-launcher")
    return int(terminated(pod)["exitCode"])


def ranks(world: World) -> list[int]:
    """The pids of the ranks, and of whatever else has the program in its command line, such as mpirun."""
    program = str(world.folder / "program.py").encode()
    return [pid for pid in processes.live_parents() if program in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def daemons(world: World) -> list[int]:
    """The processes of this node that belong to an mpirun: all but shims, sleepers and what they run."""
    marked = processes.pids_with_mark(f"TARRAGON_CONTAINER_ID={(world.node / 'identity').read_text()}.".encode())
    names = (b"prted", b"orted", b"hydra", b"mpirun", b"program.py", b"agent.pyc")
    return [pid for pid in marked if any(name in _command(pid) for name in names)]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
async def test_ranks_run_in_the_pods_of_the_host_file(world: World, implementation: str) -> None:
    await start(world, implementation, HELLO)

    code = await ended(world)

    lines = sorted(line for line in (await world.log("pi-launcher")).splitlines() if line.startswith("rank"))
    assert lines == [f"rank {rank} of 4 HOSTNAME=pi-worker-{rank // 2} sum 6" for rank in range(4)]
    assert code == 0
    await eventually(lambda: not daemons(world))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
async def test_a_killed_rank_ends_the_job(world: World, implementation: str) -> None:
    await start(world, implementation, SPIN)
    await world.says("all are there", "pi-launcher")

    rank = max(pid for pid in ranks(world) if b"python\0" in _command(pid) and b"mpirun" not in _command(pid))
    os.kill(rank, signal.SIGKILL)

    assert await ended(world) != 0
    await eventually(lambda: not daemons(world))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
async def test_a_deleted_launcher_leaves_nothing_behind_in_the_workers(world: World, implementation: str) -> None:
    await start(world, implementation, SPIN, terminationGracePeriodSeconds=1)
    await world.says("all are there", "pi-launcher")

    await world.delete("pi-launcher", grace=0)

    await eventually(lambda: not daemons(world))
    assert (await world.get("pi-worker-0"))["status"]["phase"] == "Running"


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
async def test_a_lost_worker_ends_the_job(world: World, implementation: str) -> None:
    await start(world, implementation, SPIN)
    await world.says("all are there", "pi-launcher")

    await world.delete("pi-worker-1", grace=0)

    code = await ended(world)
    if code == 0:  # 5.0.11 exits so if it sees the end of a daemon's connection before that of its agent
        assert implementation == "openmpi"
        assert "lost communication with a remote daemon" in await world.log("pi-launcher")
    await eventually(lambda: not daemons(world))
