"""The names and replica types of MPIJob manifests of all generations."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from tarragon.frameworks.kubeflow import fields as kubeflow
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.job.model import Decides, EndsAfterJob, ReplicaRole, ReplicaType

KIND = "MPIJob"
V1ALPHA1, V1ALPHA2, V1, V2BETA1 = (
    f"{kubeflow.GROUP}/{version}" for version in ("v1alpha1", "v1alpha2", "v1", "v2beta1")
)
LAUNCHER = ReplicaType("Launcher")
FIRST_CONTAINER = ""
"""The main container of a replica is its first one, whatever its name."""


class SpecField(StrEnum):
    """The fields of `spec` since v1alpha2, without those of the run policy."""

    REPLICAS = "mpiReplicaSpecs"
    RUN_POLICY = kubeflow.RUN_POLICY
    SLOTS = "slotsPerWorker"
    MAIN_CONTAINER = "mainContainer"
    SSH_PATH = "sshAuthMountPath"
    IMPLEMENTATION = "mpiImplementation"
    CREATION = "launcherCreationPolicy"
    LAUNCHER_WORKS = "runLauncherAsWorker"
    ELASTIC_POLICY = "elasticPolicy"
    """An extension: the bounds of an elastic job, as in a PyTorchJob."""


class V1Alpha1Field(StrEnum):
    """The fields of `spec` in v1alpha1, which has one template and a number of GPUs instead of replica specs."""

    TEMPLATE = "template"
    GPUS = "gpus"
    GPUS_PER_NODE = "gpusPerNode"
    UNITS = "processingUnits"
    UNITS_PER_NODE = "processingUnitsPerNode"
    RESOURCE = "processingResourceType"
    WORKERS = "replicas"
    SLOTS = "slotsPerWorker"
    ON_MASTER = "launcherOnMaster"


IDLE_COMMAND = ("sleep", "365d")
"""The command of workers before v2beta1: mpirun starts the ranks in them."""

MIN_REPLICAS = "minReplicas"
MAX_REPLICAS = "maxReplicas"
"""The fields of `spec.elasticPolicy`."""

V2_ONLY = frozenset({SpecField.SSH_PATH, SpecField.IMPLEMENTATION, SpecField.CREATION, SpecField.LAUNCHER_WORKS})

ROLES: Mapping[ReplicaType, ReplicaRole] = MappingProxyType(
    {
        LAUNCHER: ReplicaRole(decides=Decides.AS_CHIEF, is_kept_for_logs=True, restarts_after=WORKER),
        WORKER: ReplicaRole(is_elastic=True, ends_after_job=EndsAfterJob.NEVER),
    }
)

START_ORDER = (WORKER, LAUNCHER)
"""The launcher connects to the workers."""

SHAPE = KindShape(
    kind=KIND,
    replica_specs=SpecField.REPLICAS.value,
    roles=ROLES,
    main_container=FIRST_CONTAINER,
    port_name="",
    default_port=0,
)
