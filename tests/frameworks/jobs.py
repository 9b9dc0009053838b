"""TFJobs for tests: builders that set only what a test is about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.registry import framework_of
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.model import TrainingJob
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate

CONTAINER: Mapping[str, Any] = {"name": "tensorflow", "image": "train", "command": ["train"]}


def template(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{**copy.deepcopy(dict(CONTAINER)), **container}]}}


def tfjob(replicas: Mapping[str, Any] | None = None, *, name: str = "dist", **spec: Any) -> dict[str, Any]:
    """`replicas`: counts, or whole replica specs."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "n1"},
        "spec": {
            "tfReplicaSpecs": {
                kind: {"replicas": each, "template": template()} if isinstance(each, int) else each
                for kind, each in (replicas if replicas is not None else {"Worker": 1}).items()
            },
            **spec,
        },
    }


def elastic(least: int | None = None, most: int | None = None) -> dict[str, Any]:
    """DRAGON's bounds, as fields of spec."""
    return {"min-instances": least, "max-instances": most}


def worker(**fields: Any) -> dict[str, Any]:
    """A replica spec with a template, and what the test says."""
    return {"template": template(), **fields}


def taken(manifest: Any) -> DecodedJob:
    fields = manifest if isinstance(manifest, dict) else {}
    return decode_and_validate(framework_of(fields.get("apiVersion"), fields.get("kind")) or TENSORFLOW, manifest)


def job_of(manifest: Any) -> TrainingJob:
    found = taken(manifest)
    assert found.job is not None, problems(manifest)
    return found.job


def dialect_of(manifest: Any) -> Dialect:
    found = taken(manifest).dialect
    assert found is not None
    return found


def problems(manifest: Any) -> list[str]:
    return [str(problem) for problem in taken(manifest).problems]


def unknown(manifest: Any) -> list[str]:
    return [str(problem) for problem in taken(manifest).unknown_fields]


def warnings(manifest: Any) -> list[str]:
    return [str(problem) for problem in taken(manifest).warnings]
