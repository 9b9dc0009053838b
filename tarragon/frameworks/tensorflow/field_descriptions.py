"""The descriptions of all fields of TFJob, with keys as in those that all kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow import field_descriptions as shared
from tarragon.job import conditions

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.DESCRIPTIONS,
        "": "A TensorFlow training job. Its replicas find each other by TF_CONFIG and start together or not at all.",
        "apiVersion": (
            "The group and version of the job. All versions have the same schema. Which fields have an effect depends "
            "on the generation, which is recognised once and recorded in the annotation tarragon.dev/generation."
        ),
        # ------------------------------------------------------------------------------------------------- replicas
        "tfReplicaSpecs": (
            "The replicas by type: Chief, Master, PS, Worker, Evaluator, in upper or lower case. Chief and Master are "
            "two names for the same replica, which decides when the job is done. Without it, worker 0 decides."
        ),
        "spec.tfReplicaSpecs.*": "The replicas of one type.",
        "replicaSpecs": (
            "The replicas as a list with one item for each type, as before v1alpha2. The master decides when the job "
            "is done."
        ),
        "replica_specs": "The first spelling of replicaSpecs, in mlkube.io/v1beta1.",
        "spec.replicaSpecs[]": "The replicas of one type.",
        "spec.replica_specs[]": "The replicas of one type.",
        "template": "The pod template. Only the container named tensorflow decides whether the replica succeeds.",
        "spec.replicaSpecs[].restartPolicy": (
            "Only for later generations. With a list, use template.spec.restartPolicy."
        ),
        "spec.replica_specs[].restartPolicy": (
            "Only for later generations. With a list, use template.spec.restartPolicy."
        ),
        "tfReplicaType": "MASTER, PS or WORKER, in upper case.",
        "tf_replica_type": "The first spelling of tfReplicaType.",
        "tfPort": "The port of these replicas.",
        "tf_port": "The first spelling of tfPort.",
        # ------------------------------------------------------------------------------------------------- policies
        "minAvailable": (
            "For other schedulers: the number of pods to start at once. Tarragon's scheduler starts a job with all of "
            "its replicas, or with min-instances workers."
        ),
        "successPolicy": (
            "When a job without a chief succeeds. Empty: when worker 0 has succeeded. AllWorkers: when all have. "
            "If there is a chief, the chief decides."
        ),
        "enableDynamicWorker": (
            "TF_CONFIG lists only the replica itself and the parameter servers, so that workers may come and go."
        ),
        "max-instances": (
            "The maximum number of workers. With it the job is elastic: it grows while resources are free."
        ),
        "min-instances": "The minimum number of workers, both to start with and to shrink to.",
        # --------------------------------------------------------------------------------------- of early generations
        "RuntimeId": "A part of the names of all objects of the job.",
        "tfImage": "The image of a default parameter server, and of TensorBoard.",
        "terminationPolicy": "Which replica decides when the job is done.",
        "chief": "The replica that decides when the job is done.",
        "replicaName": "The type of the replica: MASTER, PS or WORKER.",
        "replicaIndex": "The index of the replica within its type.",
        "schedulerName": "The scheduler of all pods. It overrides the pod templates.",
        "tensorboard": "A TensorBoard that runs beside the job.",
        "logDir": "The directory that TensorBoard reads.",
        "volumes": "The volumes of TensorBoard's pod.",
        "volumeMounts": "The volume mounts of TensorBoard's container.",
        "serviceType": "The type of TensorBoard's Service.",
    }
)
STATUS_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "tfReplicaStatuses": "The name of replicaStatuses in v1alpha2.",
        "phase": "The progress of the operator: Creating, Running, CleanUp, Done; Failed if the job could not start.",
        "state": "The state of the job: Unknown, Running, Succeeded, Failed.",
        "reason": "Why the job failed or is not running, in a sentence.",
        "controlPaused": "Always false.",
    }
)
"""The descriptions of the status fields that no other kind has."""

CONDITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **shared.CONDITION_DESCRIPTIONS,
        conditions.RUNNING: "The chief is running, or a worker if there is no chief.",
    }
)

RECOGNITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "mlkube.io/v1beta1": "its kind, TfJob of mlkube.io (2017)",
        "kubeflow.org/v1alpha1": "`replicaSpecs`, a list (tf-operator 0.1 to 0.3)",
        "kubeflow.org/v1alpha2": "its apiVersion (tf-operator 0.2, 0.3)",
        "kubeflow.org/v1beta1": "its apiVersion (tf-operator 0.4)",
        "kubeflow.org/v1beta2": "its apiVersion (tf-operator 0.4, 0.5)",
        "kubeflow.org/v1-flat": "policies in `spec` itself (tf-operator 0.5 to 1.0.0-rc)",
        "kubeflow.org/v1-dragon": "`max-instances` or `min-instances` (DRAGON)",
        "kubeflow.org/v1": "`runPolicy`, or no policy at all (tf-operator 1.0.1 to training-operator 1.9)",
    }
)
"""How each generation is recognised, and which operators served it, by the name of its dialect."""
