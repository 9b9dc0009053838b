"""What a TFJob can lose in a conversion, found by comparing both manifests as their dialects decode them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.conversion.failure_semantics import (
    BACKOFF_LIMIT_REMEDY,
    DESCRIPTIONS,
    failure_semantics,
    remedy,
    uses_exit_codes,
)
from tarragon.frameworks.kubeflow.conversion.losses import (
    DecodedJob,
    LossFinder,
    limits,
    managed_by_and_scheduling,
    suspension,
    unsupported,
)
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.dialects import v1
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER, SpecField
from tarragon.frameworks.tensorflow.replica_types import CHIEF, MASTER
from tarragon.frameworks.tensorflow.tf_config import has_dynamic_workers
from tarragon.job.annotations import RETRYABLE_EXIT_CODES_ANNOTATION
from tarragon.job.exit_codes import ExitClass
from tarragon.job.model import Replica, ReplicaSpec, ReplicaType, TensorBoardSpec, TrainingJob
from tarragon.job.tensorboard import LOG_DIR_ANNOTATION

TENSORBOARD = "tensorboard"

_FIRST_SIGNAL, _PAST_EXIT_CODES = 128, 256


def _chief(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """Which replica decides, and its type in TF_CONFIG."""
    old, new = before.job.chief, after.job.chief
    if old is None or new is None or old == new:
        return
    path = _path_of(before.job, old)
    if _role(old.type) == _role(new.type) and old.index == new.index:
        yield Problem(
            path,
            f"is a {new.type} in {after.name}: TF_CONFIG calls it {new.type.lower()}, no longer {old.type.lower()}",
            "TensorFlow 2 knows only chief, TensorFlow before 1.4 only master: check what the program supports",
        )
        return
    yield Problem(
        path,
        f"{old} decides when the job is done; in {after.name} {new} does",
        "let the program finish in that replica",
    )


def _replicas(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    for group, twin in _pairs(before, after):
        if twin is None and group.replicas:
            yield Problem(
                group.field_path,
                f"{after.name} has no {group.type}: none runs",
                "run it as a job of its own, or stay with a generation that has it",
            )


def _restarts(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    for group, twin in _pairs(before, after):
        if twin is None:
            continue
        pairs = dict.fromkeys(
            zip(failure_semantics(before.job, group), failure_semantics(after.job, twin), strict=True)
        )
        for old, new in pairs:
            if old != new:
                words = f"{DESCRIPTIONS[old]}; in {after.name} {DESCRIPTIONS[new]}"
                yield Problem(group.field_path, words, remedy(new, has_limit=after.has_limit))


def _exit_codes(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """Exit codes that are classified differently, if exit codes decide in both generations."""
    judged = [
        group.field_path
        for group, twin in _pairs(before, after)
        if twin is not None and uses_exit_codes(before.job, group) and uses_exit_codes(after.job, twin)
    ]
    differing = [
        code
        for code in range(_FIRST_SIGNAL, _PAST_EXIT_CODES)
        if before.dialect.exit_codes(code) is not after.dialect.exit_codes(code)
    ]
    by_memory = before.dialect.exit_codes.permanent_reasons != after.dialect.exit_codes.permanent_reasons
    if judged and differing:
        tried = before.dialect.exit_codes(differing[0]) is ExitClass.RETRYABLE
        was, becomes = ("retryable", "permanent") if tried else ("permanent", "retryable")
        yield Problem(
            judged[0],
            f"exit codes from 128 on, except 130, 137, 138 and 143, are {was}; in {after.name} they are {becomes}",
            f"list the ones that matter in the annotation {RETRYABLE_EXIT_CODES_ANNOTATION}"
            if tried
            else "exit with 1 to fail for good",
        )
    if judged and by_memory:
        ends = bool(before.dialect.exit_codes.permanent_reasons)
        was, becomes = ("fails the job", "is retryable") if ends else ("is retryable", "fails the job")
        instead = BACKOFF_LIMIT_REMEDY if ends and after.has_limit else "raise the memory limit"
        yield Problem(judged[0], f"OOMKilled {was}; in {after.name} it {becomes}", instead)


def _success(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    if before.job.success_policy is not after.job.success_policy and not before.job.has_chief:
        instead = "the job succeeds when worker 0 has succeeded"
        yield unsupported("spec.successPolicy", after, instead, "let worker 0 wait for the others")


def _sparse(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    if has_dynamic_workers(before.job) and not has_dynamic_workers(after.job):
        instead = "TF_CONFIG lists the whole cluster, and the failure of a worker fails the job"
        yield unsupported(f"spec.{SpecField.DYNAMIC_WORKER}", after, instead, "")


def _elastic(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    bounds = before.job.elastic_policy
    if bounds is not None and bounds.min_replicas < bounds.max_replicas and after.job.elastic_policy is None:
        workers = after.job.requested_size().get(WORKER, 0)
        instead = f"the job runs with exactly {workers} workers"
        yield unsupported(
            f"spec.{SpecField.MAX_INSTANCES}", after, instead, f"set replicas of Worker, or stay with {before.name}"
        )


def _runtime_id(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """A runtime id, if the user wrote it. Any other one differs in each job anyway."""
    spec = before.manifest.get("spec") or {}
    is_written = any(str(name).lower() == "runtimeid" for name in spec)
    if is_written and before.job.runtime_id != after.job.runtime_id:
        yield unsupported("spec.RuntimeId", after, "pods and services are named JOB-TYPE-INDEX", "")


def _tensorboard(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """The TensorBoard, for which annotations can express less than the field."""
    old, new = before.job.tensorboard, after.job.tensorboard
    if old is None or old == new:
        return
    path = (
        "spec.tensorboard" if TENSORBOARD in before.manifest["spec"] else f"metadata.annotations.{LOG_DIR_ANNOTATION}"
    )
    if new is None or (old.log_dir, old.image) != (new.log_dir, new.image):
        yield unsupported(path, after, "TensorBoard differs" if new else "no TensorBoard is started", "")
    elif not all(mount in _mounted(new) for mount in _mounted(old)):
        instead = "TensorBoard has the mounts of the chief"
        yield unsupported(f"{path}.volumes", after, instead, "add the mount to the chief")
    elif old.service_type != new.service_type:
        yield unsupported(
            f"{path}.serviceType", after, f"its Service is a {new.service_type}", "use kubectl port-forward"
        )


def _mounted(board: TensorBoardSpec) -> list[tuple[object, ...]]:
    """The mount paths and their sources, whatever the names of the volumes."""
    sources = {
        each.get("name"): {name: value for name, value in each.items() if name != "name"} for each in board.volumes
    }
    return [
        (mount.get("mountPath"), mount.get("subPath"), sources.get(mount.get("name"))) for mount in board.volume_mounts
    ]


def _server(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """A default parameter server that the new manifest does not run."""
    for group, twin in _pairs(before, after):
        if group.runs_provided_program and twin is not None and not _runs_something(twin):
            yield unsupported(group.field_path, after, "it has no command there", "write a template")


def _pairs(before: DecodedJob, after: DecodedJob) -> Iterator[tuple[ReplicaSpec, ReplicaSpec | None]]:
    """Each group with its counterpart in the new manifest, if any."""
    twins = {_role(group.type): group for group in after.job.replica_specs}
    for group in before.job.replica_specs:
        yield group, twins.get(_role(group.type))


def _role(kind: ReplicaType) -> ReplicaType:
    return CHIEF if kind == MASTER else kind


def _path_of(job: TrainingJob, replica: Replica) -> str:
    group = job.replica_spec(replica.type)
    return group.field_path if group is not None else "spec"


def _runs_something(group: ReplicaSpec) -> bool:
    containers = group.template.get("spec", {}).get("containers", [])
    named = [each for each in containers if each.get("name") == MAIN_CONTAINER]
    return group.runs_provided_program or any(each.get("command") or each.get("args") for each in named)


TOPICS: Mapping[str, LossFinder] = MappingProxyType(
    {
        "the chief": _chief,
        "replicas": _replicas,
        "restarts": _restarts,
        "exit codes": _exit_codes,
        "suspend": suspension,
        "limits": limits(v1.NAME),
        "managedBy and schedulingPolicy": managed_by_and_scheduling,
        "successPolicy": _success,
        "enableDynamicWorker": _sparse,
        "elastic": _elastic,
        "RuntimeId": _runtime_id,
        "tensorboard": _tensorboard,
        "the standard server": _server,
    }
)
