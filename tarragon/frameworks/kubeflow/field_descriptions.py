"""The descriptions of the fields that all kinds share, for `kubectl explain` and docs/reference.

A key is the path of a field in the schema, or only its last part if the description applies wherever the field occurs.
`*` stands for any key of a map, `[]` for an item of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.job import conditions
from tarragon.kube.meta import Json

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "apiVersion": "The group and version of the job.",
        "kind": "The kind of the object.",
        "spec": "The desired replicas and policies of the job.",
        "status": "The observed state: the fields of the job's generation, and in tarragon the fields that it lacks.",
        # ------------------------------------------------------------------------------------------------- replicas
        "replicas": "The desired number of replicas. The scheduler decides how many of them run.",
        "restartPolicy": (
            "When a replica is restarted: Always, OnFailure, Never, or ExitCode, which restarts after retryable exit "
            "codes. It overrides the restartPolicy of the template."
        ),
        # ------------------------------------------------------------------------------------------------- policies
        "runPolicy": "The policies of the job as a whole.",
        "cleanPodPolicy": (
            "Which pods are deleted when the job has finished: All, None, or Running (only those still running). "
            "Services are always deleted."
        ),
        "ttlSecondsAfterFinished": "The job is deleted this many seconds after it has finished.",
        "activeDeadlineSeconds": "The job fails after it has been active for this many seconds.",
        "backoffLimit": (
            "The job fails after this many restarts of all its replicas together. Disruptions (such as a lost node or "
            "an eviction) do not count."
        ),
        "schedulingPolicy": "Options for the scheduler.",
        "minAvailable": (
            "For other schedulers: the number of pods to start at once. Tarragon's scheduler starts a job with all of "
            "its replicas."
        ),
        "minResources": "For other schedulers: the resources that must be free before the job starts.",
        "priorityClass": (
            "The PriorityClass of the job. The default is the one with the highest priority in the pod templates."
        ),
        "queue": "For other schedulers: the queue of the job. For Tarragon's scheduler, that is the job's namespace.",
        "scheduleTimeoutSeconds": "For other schedulers: how long to wait for the gang.",
        "suspend": "While true, the job has no pods. When set to false, the job is queued again.",
        "managedBy": (
            "The controller that manages the job. Tarragon ignores the job unless this is empty, "
            "kubeflow.org/training-operator, kubeflow.org/mpi-operator or tarragon.dev/tarragon."
        ),
        # --------------------------------------------------------------------------------------------------- status
        "tarragon": "The status that the generation has no fields for. The schema names only part of it.",
        "state": "The state of the job in one word.",
        "ready": "The number of ready replicas out of the number of desired ones.",
        "reason": "Why the job makes no progress, in one word.",
        "message": "Why the job makes no progress, in a sentence.",
        "progress": "How far the training is, as far as its program reports or prints that.",
        "text": "How far the training is, such as step 1,200/4,000 (30 %) · loss 0.11.",
        "status.tarragon.replicas": "The number of worker pods, for the scale subresource.",
        "selector": "The label selector of the worker pods, for the scale subresource.",
        "restarts": "The restarts of all replicas.",
        "total": (
            "How often replicas were restarted after they had ended, by a new pod or by the kubelet in the same pod. "
            "Evictions by a kubelet are included, although they do not count against backoffLimit. Not included: pods "
            "that were deleted before they had ended, and in a gang that restarts together all replicas but the first "
            "that failed."
        ),
    }
)
STATUS_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "conditions": (
            "The conditions of the job, each with type, status, reason, message, lastUpdateTime and "
            "lastTransitionTime. The last one is the most recent."
        ),
        "replicaStatuses": "The number of active, succeeded and failed replicas of each type.",
        "startTime": "When the job was first active.",
        "completionTime": "When the job finished.",
    }
)
"""The descriptions of the status fields other than `tarragon`."""

CONDITION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        conditions.CREATED: "The operator has seen the job.",
        conditions.ADMITTED: "The job is admitted. While this is False, the reason says why it waits.",
        conditions.ADMISSION_DISCARDED: (
            "The status had an admission that the scheduler did not write, and it was discarded."
        ),
        conditions.RUNNING: "The replica that decides the job is running.",
        conditions.RESTARTING: "Replicas are being restarted.",
        conditions.SUSPENDED: "The job is suspended and has no pods.",
        conditions.SUCCEEDED: "The job has succeeded.",
        conditions.FAILED: "The job has failed. The message names the replica that failed first, and its exit code.",
        conditions.BLOCKED: "Something outside the job keeps a replica from being created, bound or started.",
        conditions.STALLED: "Replicas do not start or are not ready. The job stays admitted.",
        conditions.GPU_ISOLATION: "MPS or HAMi enforces the limits on shared GPUs. While this is False, nothing does.",
        conditions.RESIZED: "The job was resized after its start. The message says what changed last, and why.",
        conditions.EVICTED: "The job was running, was preempted by another job, and waits.",
        conditions.NOT_GROWN: "The job has fewer replicas than requested. The message says why.",
        conditions.SPEC_INVALID: (
            "An edit is invalid, or the job started before something in it was rejected. The job continues with its "
            "last valid spec."
        ),
        conditions.FIELDS_IGNORED: "The manifest has unknown fields.",
    }
)
"""What each condition means. Kinds name the replicas that decide when they run."""


def describe(schema: dict[str, Json], descriptions: Mapping[str, str], path: str = "") -> None:
    """Add the descriptions to a schema, in place. Raises KeyError for a field without one."""
    schema["description"] = descriptions[path if path in descriptions else path.rpartition(".")[2]]
    fields = schema.get("properties")
    if isinstance(fields, dict):
        # API servers reject a definition that says more about metadata than its type.
        for name in fields.keys() - {"metadata"}:
            describe(fields[name], descriptions, f"{path}.{name}" if path else name)
    for word, mark in (("additionalProperties", ".*"), ("items", "[]")):
        below = schema.get(word)
        if isinstance(below, dict) and f"{path}{mark}" in descriptions:
            describe(below, descriptions, f"{path}{mark}")
