"""For each generation, jobs with all of its fields, so that together they have every loss of conversion."""

from __future__ import annotations

from typing import Any

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES
from tarragon.frameworks.tensorflow.conversion.convert import convert
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS, SpecLayout, TFJobGeneration
from tests.frameworks.jobs import template

POLICIES: dict[str, Any] = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 60,
    "backoffLimit": 3,
    "suspend": True,
    "managedBy": "kueue.x-k8s.io/multikueue",
    "schedulingPolicy": {"queue": "night"},
}


def jobs(generation: TFJobGeneration) -> list[dict[str, Any]]:
    specs = _lists(generation) if generation.is_list else _maps(generation)
    kind = {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": {"name": "dist"}}
    return [{**kind, "spec": spec} for spec in specs]


def lost(source: str, target: str) -> set[str]:
    """The topics of all losses between two generations."""
    made = [convert(job, source, target) for job in jobs(GENERATIONS[source])]
    return {loss.topic for each in made for loss in each.losses}


def _lists(generation: TFJobGeneration) -> list[dict[str, Any]]:
    def item(kind: str, **more: Any) -> dict[str, Any]:
        return {"tfReplicaType": kind, "template": template(), **more}

    board = {"logDir": "/logs", "serviceType": "NodePort"}
    common_fields = {
        "RuntimeId": "ab12",
        "runPolicy": {name: POLICIES[name] for name in POLICIES if name in generation.policies},
    }
    if "tensorboard" in generation.fields:
        common_fields["tensorboard"] = board
    found = [{**common_fields, "replicaSpecs": [item("MASTER"), item("WORKER"), {"tfReplicaType": "PS"}]}]
    if "terminationPolicy" in generation.fields:
        chief = {"chief": {"replicaName": "WORKER", "replicaIndex": 1}}
        found.append({**common_fields, "terminationPolicy": chief, "replicaSpecs": [item("WORKER", replicas=2)]})
    return found


def _maps(generation: TFJobGeneration) -> list[dict[str, Any]]:
    common_fields = {name: value for name, value in POLICIES.items() if name in generation.policies}
    if generation.shape is SpecLayout.NESTED:
        common_fields = {"runPolicy": common_fields}
    else:
        flat = {name: value for name, value in common_fields.items() if name in FLAT_POLICIES}
        nested = {name: value for name, value in common_fields.items() if name not in FLAT_POLICIES}
        common_fields = {**flat, **({"runPolicy": nested} if nested else {})}
    if "max-instances" in generation.fields:
        common_fields |= {"min-instances": 1, "max-instances": 3}
    if "successPolicy" in generation.fields:
        common_fields |= {"successPolicy": "AllWorkers", "enableDynamicWorker": True}
    chief: Any = {"template": template(), "restartPolicy": "ExitCode"}
    worker: Any = {"template": template(), "replicas": 2}
    return [
        {**common_fields, "tfReplicaSpecs": {"Chief": chief, "Worker": worker, "Evaluator": worker | {"replicas": 1}}},
        {**common_fields, "tfReplicaSpecs": {"Worker": worker | {"restartPolicy": "ExitCode"}}},
    ]
