"""Kinds of Kubeflow and related projects that Tarragon does not run, with the messages for users who submit one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.registry import kinds, kinds_in_words

RUNS = f"Tarragon runs {kinds_in_words()}"
NOT_YET = "is not supported yet"
NO_JOB = "is not a training job"

_KUBEFLOW = "kubeflow.org"
_RELATIVES = frozenset({"argoproj.io", "serving.kserve.io", "sparkoperator.k8s.io"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedKinds:
    """Kinds with the same message."""

    kinds: tuple[str, ...]
    message: str
    remedy: str
    is_common: bool = True
    """Whether other projects use the same names. If so, the group must be one of Kubeflow or a related project."""


UNSUPPORTED_KINDS: tuple[UnsupportedKinds, ...] = (
    UnsupportedKinds(
        kinds=(
            "PyTorchJob",
            "XGBoostJob",
            "PaddleJob",
            "MXJob",
            "MXNetJob",
            "ChainerJob",
            "CaffeJob",
            "Caffe2Job",
            "TrainJob",
        ),
        message=NOT_YET,
        remedy=RUNS,
        is_common=False,
    ),
    UnsupportedKinds(kinds=("TrainingRuntime", "ClusterTrainingRuntime"), message=NOT_YET, remedy=RUNS),
    UnsupportedKinds(
        kinds=("Experiment", "Suggestion", "Trial", "StudyJob"),
        message=NOT_YET,
        remedy=f"{RUNS}: submit one for each set of parameters",
    ),
    UnsupportedKinds(
        kinds=(
            "Notebook",
            "Tensorboard",
            "PVCViewer",
            "Viewer",
            "Profile",
            "PodDefault",
            "InferenceService",
            "InferenceGraph",
            "ServingRuntime",
            "ClusterServingRuntime",
            "TrainedModel",
            "Pipeline",
            "PipelineVersion",
            "ScheduledWorkflow",
            "Workflow",
            "CronWorkflow",
            "WorkflowTemplate",
            "ClusterWorkflowTemplate",
            "SparkApplication",
            "ScheduledSparkApplication",
        ),
        message=NO_JOB,
        remedy=f"create it with kubectl, where the operator of its kind is installed: {RUNS}",
    ),
)


def unsupported_kind_problem(api_version: str, kind: str) -> Problem | None:
    """A Problem for a kind in the table that no framework has, else None.

    Kinds are compared without case and quoted as written.
    """
    group = api_version.rpartition("/")[0]
    if kind.lower() in _lower(kinds()):
        return None
    for row in UNSUPPORTED_KINDS:
        if kind.lower() in _lower(row.kinds) and (not row.is_common or _is_of_kubeflow(group)):
            return Problem("kind", f"{kind} ({api_version}) {row.message}", row.remedy)
    return None


def unsupported_job_kind(word: str) -> str | None:
    """The unsupported kind of job that `word` names in one of kubectl's forms: `pytorchjob`, `pytorchjobs`."""
    name, supported = word.lower().partition(".")[0], _lower(kinds())
    for row in UNSUPPORTED_KINDS:
        for kind in row.kinds if row.message == NOT_YET else ():
            if name in {kind.lower(), f"{kind.lower()}s"} and kind.lower() not in supported:
                return kind
    return None


def _lower(kinds: Iterable[str]) -> set[str]:
    return {kind.lower() for kind in kinds}


def _is_of_kubeflow(group: str) -> bool:
    return group == _KUBEFLOW or group.endswith(f".{_KUBEFLOW}") or group in _RELATIVES
