"""What each field of a TFJob means, in words: for `kubectl explain` and for docs/reference.

A key is the path of a field in the schema, or its last name where that means the same wherever it stands. `*` is any
key of a map, `[]` an item of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.job import conditions
from tarragon.kube.meta import Json

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "": (
            "A training job of TensorFlow: replicas that find each other by TF_CONFIG, started together or not at all."
        ),
        "apiVersion": (
            "The group and version that the job is written in. All versions have one schema; which fields count "
            "is decided by the generation, which is recognised once and then stands in the annotation "
            "tarragon.dev/generation."
        ),
        "kind": "The kind of the object.",
        "spec": "What is wished for: the replicas, and what becomes of them.",
        "status": (
            "What has become of the job: the fields of its generation, and in tarragon what those have no place for."
        ),
        # ------------------------------------------------------------------------------------------------- replicas
        "tfReplicaSpecs": (
            "The replicas by type: Chief, Master, PS, Worker, Evaluator, in any capitals. Chief and Master are "
            "two words for one replica. It ends the job; without it worker 0 does."
        ),
        "spec.tfReplicaSpecs.*": "The replicas of one type.",
        "replicaSpecs": "The replicas as a list, an item a type, as before v1alpha2. The master ends the job.",
        "replica_specs": "The first spelling of replicaSpecs, in mlkube.io/v1beta1.",
        "spec.replicaSpecs[]": "The replicas of one type.",
        "spec.replica_specs[]": "The replicas of one type.",
        "replicas": "How many there are to be. What runs is the size that the scheduler has admitted.",
        "template": (
            "A pod template. The container called tensorflow decides about success, whatever others beside it do."
        ),
        "restartPolicy": (
            "When a replica is started again: Always, OnFailure, Never, or ExitCode, which tries again what ended"
            " with an exit code that says so. It stands for that of the template."
        ),
        "spec.replicaSpecs[].restartPolicy": (
            "Of later generations: a list takes it from template.spec.restartPolicy."
        ),
        "spec.replica_specs[].restartPolicy": (
            "Of later generations: a list takes it from template.spec.restartPolicy."
        ),
        "tfReplicaType": "MASTER, PS or WORKER, in capitals.",
        "tf_replica_type": "The first spelling of tfReplicaType.",
        "tfPort": "The port of these replicas.",
        "tf_port": "The first spelling of tfPort.",
        # ------------------------------------------------------------------------------------------------- policies
        "runPolicy": "What becomes of the job as a whole.",
        "cleanPodPolicy": (
            "Which pods are deleted when the job has ended: All, None, or Running, those that still run. Services"
            " always go."
        ),
        "ttlSecondsAfterFinished": "The job is deleted so many seconds after its end.",
        "activeDeadlineSeconds": "The job fails when it has been at work for so many seconds.",
        "backoffLimit": (
            "The job fails when its replicas have been started again so often in sum. Disruptions (a node that "
            "was lost, an eviction) do not count."
        ),
        "schedulingPolicy": "Wishes to the scheduler.",
        "minAvailable": (
            "For another scheduler: how many pods it starts at once. Tarragon's own starts a job with all of its "
            "replicas, or with min-instances workers."
        ),
        "minResources": "For another scheduler: what must be free for the job to start.",
        "priorityClass": "The PriorityClass that says how urgent the job is; else the highest that its pods name does.",
        "queue": "For another scheduler: the queue that the job stands in. For Tarragon's own that is its namespace.",
        "scheduleTimeoutSeconds": "For another scheduler: how long a gang is waited for.",
        "suspend": "While true the job has no pods. When it is false again the job queues anew.",
        "managedBy": (
            "Who keeps the job. Anybody but kubeflow.org/training-operator and tarragon.dev/tarragon: Tarragon "
            "leaves it alone."
        ),
        "successPolicy": (
            "Empty: the job has succeeded with its worker 0. AllWorkers: with all workers. A chief decides before"
            " either."
        ),
        "enableDynamicWorker": (
            "Each replica is told of itself and the parameter servers only, so that workers may come and go."
        ),
        "max-instances": (
            "The most workers that the job may get. With it the job is elastic: it grows into what is free."
        ),
        "min-instances": "The least workers to start with, and to shrink to.",
        # --------------------------------------------------------------------------------------- of early generations
        "RuntimeId": "Part of the names of all that belongs to the job.",
        "tfImage": "The image of a parameter server that is left to the operator, and of TensorBoard.",
        "terminationPolicy": "Who ends the job.",
        "chief": "The replica whose end is the job's.",
        "replicaName": "Its type: MASTER, PS or WORKER.",
        "replicaIndex": "Which one of its type.",
        "schedulerName": "The scheduler of all pods, whatever their templates say.",
        "tensorboard": "A TensorBoard beside the job.",
        "logDir": "The folder that it shows.",
        "volumes": "Volumes of its pod.",
        "volumeMounts": "Where its container sees them.",
        "serviceType": "The type of its Service.",
        # --------------------------------------------------------------------------------------------------- status
        "tarragon": (
            "What the generation's own fields have no place for. Only what columns and scaling read is named here."
        ),
        "state": "The job's state in one word.",
        "ready": "Replicas that are ready, of those that are wanted.",
        "reason": "In one word, why it is not going on.",
        "message": "The reason in a sentence.",
        "status.tarragon.replicas": "Worker pods, for the scale subresource.",
        "selector": "Selects the worker pods, for the scale subresource.",
        "restarts": "Of all replicas.",
        "total": (
            "How often replicas have been started again because they had ended: by a new pod, or by the kubelet in "
            "the same one; an eviction by a kubelet counts here, and not for backoffLimit. Not counted: pods that were "
            "deleted before they had ended, by whoever (a person, a drained node, the operator), and in a gang that "
            "restarts as one all but the first replica to fall."
        ),
    }
)
OF_STATUS: Mapping[str, str] = MappingProxyType(
    {
        "conditions": (
            "What is and was true of the job, each with type, status, reason, message, lastUpdateTime and "
            "lastTransitionTime; the last one is the most recent."
        ),
        "replicaStatuses": "How many replicas of each type are active, have succeeded, have failed.",
        "tfReplicaStatuses": "The same, as v1alpha2 called it.",
        "startTime": "When the job was first at work.",
        "completionTime": "When it ended.",
        "phase": "How far the operator has come: Creating, Running, CleanUp, Done; Failed, if the job could not begin.",
        "state": "How the job is doing: Unknown, Running, Succeeded, Failed.",
        "reason": "In words, why it failed, or does not run.",
        "controlPaused": "Always false.",
    }
)
"""The fields of status beside `tarragon`."""

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        conditions.CREATED: "The operator has seen the job.",
        conditions.ADMITTED: "It has its places. While false, its reason is why it waits.",
        conditions.ADMISSION_REFUSED: (
            "Its status had an admission that the scheduler could not have decided, and that counted for nothing."
        ),
        conditions.RUNNING: "Its deciding replica runs, or a worker.",
        conditions.RESTARTING: "Replicas are started again.",
        conditions.SUSPENDED: "Somebody wishes it to have no pods.",
        conditions.SUCCEEDED: "It has ended well.",
        conditions.FAILED: "It has ended badly; the message says which replica was first, with its exit code.",
        conditions.BLOCKED: "Something outside of the job keeps a replica from being made, bound or started.",
        conditions.STALLED: "Replicas do not get to run, or are not ready, and keep their places.",
        conditions.RESIZED: "It runs with another size than it was started with: what was changed last, and why.",
        conditions.EVICTED: "It ran, had to give all its places to another job, and waits.",
        conditions.NOT_GROWN: "It has fewer replicas than it wishes for; its message says why.",
        conditions.SPEC_REFUSED: (
            "An edit makes no sense, or the job began before something in it was refused; the job goes on as it was."
        ),
        conditions.FIELDS_IGNORED: "The manifest has fields that nobody knows.",
    }
)

KNOWN_BY: Mapping[str, str] = MappingProxyType(
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
"""What a generation is recognised by, and who served it, by the name of its dialect."""


def meaning(path: str) -> str:
    """Raises KeyError for a field that nobody has described."""
    return MEANINGS[path if path in MEANINGS else path.rpartition(".")[2]]


def describe(schema: dict[str, Json], path: str = "") -> None:
    """Write the descriptions into a schema, in place."""
    schema["description"] = meaning(path)
    fields = schema.get("properties")
    if isinstance(fields, dict):
        # The schema of metadata is the server's own: it refuses a definition that says more of it than its type.
        for name in fields.keys() - {"metadata"}:
            describe(fields[name], f"{path}.{name}" if path else name)
    for word, mark in (("additionalProperties", ".*"), ("items", "[]")):
        below = schema.get(word)
        if isinstance(below, dict) and f"{path}{mark}" in MEANINGS:
            describe(below, f"{path}{mark}")
