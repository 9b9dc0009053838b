"""The host files of mpirun and the host discovery script of elastic Horovod.

The image may have another MPI than the manifest names, or than Open MPI, where it names none. An mpirun that finds no
hosts starts all ranks in the launcher and succeeds. So there is a host file in each format: `hostfile` for the MPI that
is named, as in mpi-operator, and beside it one for the others.

Their lines are those of mpi-operator, but for `discover_hosts.sh` of v2beta1, which omitted the slots: Horovod then
took every host for one slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.objects.names import HOST_FILE, pod_name
from tarragon.frameworks.mpi.options import HostFileFormat, Implementation, Transport, options_of
from tarragon.frameworks.plugin import JobObservation
from tarragon.job.model import Replica, TrainingJob

_SEPARATORS: Mapping[HostFileFormat, str] = MappingProxyType(
    {HostFileFormat.OPEN_MPI: " slots=", HostFileFormat.HYDRA: ":"}
)


def host_file_name(named: Implementation, form: HostFileFormat) -> str:
    """The name of the host file in that format, where the manifest names that implementation."""
    return HOST_FILE if named.host_file_format is form else f"{HOST_FILE}.{form}"


def host_file_names(named: Implementation) -> Iterable[str]:
    return [host_file_name(named, form) for form in HostFileFormat]


def host_file(observation: JobObservation, form: HostFileFormat) -> str:
    """One line for each admitted host, whether it runs or not; empty without any."""
    hosts = _hosts(observation.job, observation.replicas)
    return "".join(f"{_line(observation, replica, form)}\n" for replica in hosts)


def discovery_script(observation: JobObservation) -> str:
    """A shell script that prints `host:slots` for each worker that runs and is not asked to leave.

    A launcher that works is printed whether it runs or not: it is where the script is called. Before a launcher that
    waits for its workers is there, nobody calls the script, and all workers are printed, as the launcher will find
    them: so their starts do not change it one by one.
    """
    slots = options_of(observation.job).slots
    callable_hosts = observation.replicas if _awaits_workers(observation) else _running(observation)
    echoes = "".join(
        f"echo {host(observation.job, replica, observation.cluster_domain)}:{slots}\n"
        for replica in _hosts(observation.job, callable_hosts)
    )
    return f"#!/bin/sh\n{echoes}"


def _awaits_workers(observation: JobObservation) -> bool:
    launcher = observation.job.replica_spec(LAUNCHER)
    is_there = any(replica.type == LAUNCHER for replica in observation.replica_states)
    return not is_there and launcher is not None and launcher.starts_after == WORKER


def _running(observation: JobObservation) -> Iterator[Replica]:
    states = observation.replica_states.items()
    return (replica for replica, state in states if state.is_running and not state.is_leaving)


def host(job: TrainingJob, replica: Replica, domain: str) -> str:
    """The host of a replica: the pod's name for exec, its name in the DNS for SSH."""
    name = pod_name(job, replica)
    if options_of(job).transport is Transport.EXEC:
        return name
    return f"{name}.{job.key.name}.{job.key.namespace}.svc{'.' + domain if domain else ''}"


def _hosts(job: TrainingJob, replicas: Iterable[Replica]) -> Iterator[Replica]:
    if options_of(job).launcher_works:
        yield Replica(LAUNCHER, 0)
    yield from sorted(replica for replica in replicas if replica.type == WORKER)


def _line(observation: JobObservation, replica: Replica, form: HostFileFormat) -> str:
    slots = options_of(observation.job).slots
    return f"{host(observation.job, replica, observation.cluster_domain)}{_SEPARATORS[form]}{slots}"
