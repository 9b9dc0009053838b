"""The names of an MPIJob's objects, such as `{job}-launcher` and `{job}-worker-{index}`, and of the files it gives."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.object_names import object_names
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.plugin import ObjectNames
from tarragon.job.model import Replica, TrainingJob

CONFIG_PATH = "/etc/mpi"
"""Where pods have the files of the job's ConfigMap."""
HOST_FILE, DISCOVERY_SCRIPT, KUBEXEC = "hostfile", "discover_hosts.sh", "kubexec.sh"

_INDEXED = object_names((WORKER,))


def pod_name(job: TrainingJob, replica: Replica) -> str:
    return launcher_name(job) if replica.type == LAUNCHER else _INDEXED.pod(job, replica)


def launcher_name(job: TrainingJob) -> str:
    """The name of the launcher's pod, service account, role and role binding."""
    return f"{job.key.name}-launcher"


def config_name(job: TrainingJob) -> str:
    return f"{job.key.name}-config"


def secret_name(job: TrainingJob) -> str:
    return f"{job.key.name}-ssh"


def _replica_of(job: TrainingJob, name: str) -> Replica | None:
    return Replica(LAUNCHER, 0) if name == launcher_name(job) else _INDEXED.replica_of(job, name)


NAMES = ObjectNames(pod=pod_name, service=pod_name, replica_of=_replica_of)
