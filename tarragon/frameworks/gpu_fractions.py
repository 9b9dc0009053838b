"""Detects requests for fractions of GPUs, which Tarragon does not support yet, in the forms of KubeShare and DRAGON.

DRAGON uses the job annotation DRAGON_KUBESHARE, KubeShare 1 the pod annotations `kubeshare/...`, KubeShare 2 the labels
`sharedgpu/...`. Without their schedulers such a pod would start without a GPU and train on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.pod_rules import WithPath, all_containers
from tarragon.job.model import TrainingJob
from tarragon.kube.field_reader import join_path
from tarragon.kube.meta import Json, JsonObject

DRAGON_ANNOTATION = "DRAGON_KUBESHARE"
DOMAINS = frozenset({"kubeshare", "sharedgpu"})
"""Prefixes of annotations and labels, and of resources, which some users write instead by mistake."""


def is_fraction_name(name: str) -> bool:
    """Whether an annotation, label, resource or environment variable of this name requests a fraction."""
    domain, slash, _ = name.partition("/")
    return name == DRAGON_ANNOTATION or (bool(slash) and domain in DOMAINS)


def no_gpu_fractions(job: TrainingJob) -> Iterator[Problem]:
    """A Problem for each request for a fraction of a GPU."""
    for path, fields in _candidates(job):
        for name, value in fields.items():
            if is_fraction_name(name) and not _is_off(name, value):
                yield _problem(join_path(path, name))
    for path, container in all_containers(job):
        for index, variable in enumerate(container.get("env", [])):
            if variable.get("name") == DRAGON_ANNOTATION and not _is_off(DRAGON_ANNOTATION, _value(variable)):
                yield _problem(f"{path}.env[{index}]")


def _candidates(job: TrainingJob) -> Iterator[WithPath]:
    yield "metadata.labels", job.labels
    yield "metadata.annotations", job.annotations
    for group in job.replica_specs:
        metadata = group.template.get("metadata", {})
        for kind in ("labels", "annotations"):
            yield f"{group.field_path}.template.metadata.{kind}", metadata.get(kind, {})
    for path, container in all_containers(job):
        for kind in ("limits", "requests"):
            yield f"{path}.resources.{kind}", container.get("resources", {}).get(kind, {})


def _value(variable: JsonObject) -> Json:
    """The value of a variable. Without `value` and `valueFrom` it is empty, as in Kubernetes."""
    return variable.get("value", variable.get("valueFrom", ""))


def _is_off(name: str, value: Json) -> bool:
    """Whether the value turns the feature off, so that DRAGON treats the job as an ordinary one."""
    return name == DRAGON_ANNOTATION and str(value).lower() in {"", "false"}


def _problem(path: str) -> Problem:
    return Problem(
        path, "fractions of GPUs are not supported yet", "ask for whole GPUs with nvidia.com/gpu, or remove it"
    )
