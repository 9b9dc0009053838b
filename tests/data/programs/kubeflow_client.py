"""What a user of Kubeflow's client library 1.9 does with a job: creates it, waits, reads its logs, and deletes it.

python kubeflow_client.py KUBECONFIG KIND PROGRAM...     The program is that of the launcher, or of all workers.

The job has a namespace of its own: the library cannot list jobs of other generations, which lack fields of v1.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient, models
from kubernetes.client import V1Container, V1ObjectMeta, V1PodSpec, V1PodTemplateSpec

config, kind, *program = sys.argv[1:]
NAME = f"{kind.lower()}-of-python"


def replicas(count: int, container: str, command: list[str] | None = None) -> Any:
    one = V1Container(name=container, image="mpi", command=command)
    template = V1PodTemplateSpec(spec=V1PodSpec(containers=[one]))
    return models.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="Never", template=template)


def mpi_spec() -> Any:
    return models.KubeflowOrgV1MPIJobSpec(
        slots_per_worker=2,
        clean_pod_policy="Running",
        run_policy=models.KubeflowOrgV1RunPolicy(clean_pod_policy="Running"),
        mpi_replica_specs={"Launcher": replicas(1, "mpi", program), "Worker": replicas(2, "mpi")},
    )


def tensorflow_spec() -> Any:
    return models.KubeflowOrgV1TFJobSpec(
        run_policy=models.KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
        tf_replica_specs={"Worker": replicas(2, "tensorflow", program)},
    )


JOBS = {
    "MPIJob": (models.KubeflowOrgV1MPIJob, mpi_spec),
    "TFJob": (models.KubeflowOrgV1TFJob, tensorflow_spec),
}
model, spec = JOBS[kind]
client = TrainingClient(config_file=config, namespace=NAME, job_kind=kind)
job = model(api_version="kubeflow.org/v1", kind=kind, metadata=V1ObjectMeta(name=NAME), spec=spec())
client.create_job(job)
client.wait_for_job_conditions(NAME, expected_conditions={"Running", "Succeeded"}, polling_interval=1)
ended = client.wait_for_job_conditions(NAME, polling_interval=1)
logs, _ = client.get_job_logs(NAME)
found = {
    "listed": [each.metadata.name for each in client.list_jobs()],
    "conditions": [each.type for each in ended.status.conditions],
    "succeeded": client.is_job_succeeded(NAME),
    "failed": client.is_job_failed(NAME),
    "pods": sorted(client.get_job_pod_names(NAME)),
    "masters": client.get_job_pod_names(NAME, is_master=True),
    "logs": logs,
}
client.delete_job(NAME)
print(json.dumps(found))
