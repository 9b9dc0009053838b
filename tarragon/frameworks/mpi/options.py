"""What only MPIJobs have: slots, the implementation of MPI, and how the launcher reaches its workers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.job.model import ReplicaType, TrainingJob

SSH_PATH = "/root/.ssh"


class HostFileFormat(StrEnum):
    """How the line of a host says how many slots it has. An mpirun reads one of them and rejects the other."""

    OPEN_MPI = "openmpi"
    """`HOST slots=N`"""
    HYDRA = "hydra"
    """`HOST:N`, for Hydra, the mpirun of MPICH and Intel MPI."""


class Implementation(StrEnum):
    """The implementations of MPI that v2beta1 names. They read different host files and variables."""

    OPEN_MPI = "OpenMPI"
    INTEL = "Intel"
    MPICH = "MPICH"

    @property
    def host_file_format(self) -> HostFileFormat:
        return HostFileFormat.OPEN_MPI if self is Implementation.OPEN_MPI else HostFileFormat.HYDRA


class LauncherCreation(StrEnum):
    """When the launcher is created."""

    AT_STARTUP = "AtStartup"
    WAIT_FOR_WORKERS_READY = "WaitForWorkersReady"


class Transport(StrEnum):
    """How mpirun starts its daemons on the workers."""

    EXEC = "exec"
    """By the API server's exec, in all generations before v2beta1."""
    SSH = "ssh"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiOptions:
    """The fields of an MPIJob's spec that are neither replicas nor policies."""

    slots: int = 1
    """Ranks per worker."""
    transport: Transport = Transport.SSH
    implementation: Implementation = Implementation.OPEN_MPI
    main_container: str = ""
    """The container of the workers in which ranks run; empty for the first one."""
    ssh_path: str = SSH_PATH
    launcher_works: bool = False
    """Whether the launcher's pod runs ranks too."""


def options_of(job: TrainingJob) -> MpiOptions:
    """The options that the decoder of an MPIJob has set."""
    return job.options if isinstance(job.options, MpiOptions) else MpiOptions()


def ranks_per_replica(job: TrainingJob, kind: ReplicaType) -> int:
    """The ranks that mpirun starts in a replica of that type, where its command says nothing else."""
    options = options_of(job)
    return 0 if kind == LAUNCHER and not options.launcher_works else options.slots
