"""The descriptions of all fields of MPIJob, with keys as in those that all kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow import field_descriptions as shared
from tarragon.frameworks.mpi.manifest.decoding import BACKOFF_LIMIT
from tarragon.frameworks.mpi.manifest.v1alpha1_decoding import GPU, UNITS_PER_NODE
from tarragon.frameworks.mpi.options import SSH_PATH, Implementation, LauncherCreation, MpiOptions
from tarragon.job import conditions

_DEFAULTS = MpiOptions()

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.DESCRIPTIONS,
        "": "A training job that runs mpirun: a launcher starts ranks in its workers, by SSH or by the API's exec.",
        "apiVersion": (
            "The group and version of the job. All versions have the same schema. Which fields have an effect depends "
            "on the generation, which is recognised once and recorded in the annotation tarragon.dev/generation."
        ),
        # ------------------------------------------------------------------------------------------------- replicas
        "mpiReplicaSpecs": (
            "The replicas by type: Launcher, which runs mpirun and decides when the job is done, and Worker, in which "
            "the ranks run."
        ),
        "spec.mpiReplicaSpecs.*": "The replicas of one type.",
        "template": "The pod template. The first container decides whether the replica succeeds.",
        "spec.template": "The pod template of the launcher and of all workers, in v1alpha1.",
        "restartPolicy": (
            "When a replica is restarted: Always, OnFailure, Never, or ExitCode. In all generations but v1 a failed "
            "launcher starts again until backoffLimit is exceeded. v2beta1 has only Never and OnFailure. By default "
            "workers have Never, and before v1 Always."
        ),
        "backoffLimit": (
            f"The job fails once its launcher has failed more often than this; {BACKOFF_LIMIT} by default, and no "
            "limit in v1. "
            "A launcher that ends because it lost a worker has not failed."
        ),
        "slotsPerWorker": (
            f"The number of ranks that mpirun starts on each worker; {_DEFAULTS.slots} by default, and in v1alpha1 as "
            "many as the worker has processing units."
        ),
        "mainContainer": "The container of the workers in which ranks run, up to v1. By default the first one.",
        "sshAuthMountPath": f"The directory of the SSH keys in all pods, since v2beta1; by default {SSH_PATH}.",
        "mpiImplementation": (
            f"The MPI that reads /etc/mpi/hostfile: {Implementation.OPEN_MPI} (the default), {Implementation.INTEL} or "
            f"{Implementation.MPICH}. Others find their own."
        ),
        "launcherCreationPolicy": (
            f"When the launcher is created: {LauncherCreation.AT_STARTUP} (the default), or "
            f"{LauncherCreation.WAIT_FOR_WORKERS_READY}. Older generations always wait."
        ),
        "runLauncherAsWorker": "Whether ranks run in the launcher's pod, too; by default they do not.",
        "elasticPolicy": (
            "An extension of Tarragon: the bounds of an elastic job. It grows while resources are free, and "
            "/etc/mpi/discover_hosts.sh lists the workers that run, as elastic Horovod expects."
        ),
        "minReplicas": (
            "The minimum number of workers, both to start with and to shrink to. By default the number of Workers, and "
            "at least 1 unless ranks run in the launcher's pod."
        ),
        "maxReplicas": "The maximum number of workers; by default the number of Workers.",
        # ---------------------------------------------------------------------------------------------- of v1alpha1
        "gpus": "The number of GPUs of all workers together. It is compared without case: GPUs means the same.",
        "gpusPerNode": f"The number of GPUs of each worker; {UNITS_PER_NODE} by default.",
        "processingUnits": "The number of GPUs, or of CPUs, of all workers together.",
        "processingUnitsPerNode": f"The number of processing units of each worker; {UNITS_PER_NODE} by default.",
        "processingResourceType": f"The resource that processing units are: {GPU} (the default) or cpu.",
        "spec.replicas": "The number of workers, whose processing units are the limit in the template.",
        "launcherOnMaster": "Whether the launcher runs on a node of the control plane.",
    }
)
STATUS_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.STATUS_DESCRIPTIONS,
        "launcherStatus": "The state of the launcher in v1alpha1: Active, Succeeded or Failed.",
        "workerReplicas": "The number of workers that run, in v1alpha1.",
    }
)
"""The descriptions of the status fields other than `tarragon`."""

CONDITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.CONDITION_DESCRIPTIONS,
        conditions.RUNNING: (
            "The launcher is running. It becomes true once all workers run, too, unless the job is elastic."
        ),
    }
)

RECOGNITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "kubeflow.org/v1alpha1": "`template`, one for all pods (mpi-operator 0.1, 0.2)",
        "kubeflow.org/v1alpha2": "its apiVersion (mpi-operator 0.2)",
        "kubeflow.org/v1": "its apiVersion (mpi-operator 0.2.3 and 0.3, training-operator up to 1.9)",
        "kubeflow.org/v2beta1": "its apiVersion, or a field that only it has (mpi-operator since 0.3)",
    }
)
"""How each generation is recognised, and which operators served it, by the name of its dialect."""
