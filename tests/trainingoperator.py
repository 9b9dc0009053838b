"""What Kubeflow's training-operator 1.9 makes of a TFJob, to the last label: for tests of what we do with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

BEGAN = "2026-11-20T08:00:00Z"
PORT = {"name": "tfjob-port", "containerPort": 2222, "protocol": "TCP"}


def objects(job: Json) -> Iterator[tuple[Json, Json]]:
    """Of each replica its pod and its service. `job` is as the API server has it, with its uid."""
    groups = job["spec"]["tfReplicaSpecs"]
    deciding = next((kind for kind in ("Chief", "Master") if kind in groups), "Worker")
    for kind, group in groups.items():
        for index in range(group["replicas"]):
            labels = _labels(job, kind, index)
            role = {"training.kubeflow.org/job-role": "master"} if (kind, index) == (deciding, 0) else {}
            yield _pod(job, kind, index, labels | role), _service(job, kind, index, labels)


def status(job: Json) -> Json:
    """Of a job whose replicas run."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    times = {"lastTransitionTime": BEGAN, "lastUpdateTime": BEGAN}
    said = (("Created", f"TFJob {name} is created."), ("Running", f"TFJob {namespace}/{name} is running."))
    return {
        "conditions": [
            {"type": kind, "status": "True", "reason": f"TFJob{kind}", "message": message, **times}
            for kind, message in said
        ],
        "replicaStatuses": {
            kind: {"active": group["replicas"], "selector": _selector(job, kind)}
            for kind, group in job["spec"]["tfReplicaSpecs"].items()
        },
        "startTime": BEGAN,
    }


def _labels(job: Json, kind: str, index: int) -> dict[str, str]:
    return {
        "training.kubeflow.org/job-name": job["metadata"]["name"],
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": kind.lower(),
    }


def _selector(job: Json, kind: str) -> str:
    labels = _labels(job, kind, 0)
    return ",".join(f"{name}={value}" for name, value in labels.items() if not name.endswith("-index"))


def _metadata(job: Json, kind: str, index: int, labels: dict[str, str]) -> Json:
    metadata = job["metadata"]
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": "TFJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "name": f"{metadata['name']}-{kind.lower()}-{index}",
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [owner],
    }


def _pod(job: Json, kind: str, index: int, labels: dict[str, str]) -> Json:
    group = job["spec"]["tfReplicaSpecs"][kind]
    template = group["template"]
    variable = {"name": "TF_CONFIG", "value": _tf_config(job, kind, index)}
    metadata = _metadata(job, kind, index, labels)
    if "annotations" in template.get("metadata", {}):
        metadata["annotations"] = template["metadata"]["annotations"]
    containers = [
        {**container, "env": [*container.get("env", []), variable], "ports": [*container.get("ports", []), PORT]}
        for container in template["spec"]["containers"]
    ]
    spec = {**template["spec"], "containers": containers, "restartPolicy": group.get("restartPolicy", "Never")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _service(job: Json, kind: str, index: int, labels: dict[str, str]) -> Json:
    port = {"name": "tfjob-port", "port": 2222, "protocol": "TCP", "targetPort": 2222}
    spec = {"clusterIP": "None", "selector": labels, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, kind, index, labels), "spec": spec}


def _tf_config(job: Json, kind: str, index: int) -> str:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    cluster = {
        each.lower(): [f"{name}-{each.lower()}-{number}.{namespace}.svc:2222" for number in range(group["replicas"])]
        for each, group in sorted(job["spec"]["tfReplicaSpecs"].items())
    }
    task = {"type": kind.lower(), "index": index}
    return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"}, separators=(",", ":"))
