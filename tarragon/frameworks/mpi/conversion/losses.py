"""What an MPIJob can lose in a conversion, found by comparing both manifests as their dialects decode them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.base.quantity import parse_milli
from tarragon.frameworks.kubeflow.conversion.failure_semantics import DESCRIPTIONS, remedy
from tarragon.frameworks.kubeflow.conversion.losses import DecodedJob, LossFinder, unsupported
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, WORKER, PolicyField
from tarragon.frameworks.mpi.conversion.failures import all_failures_are_final, failure_fates, fatal_failure
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tarragon.frameworks.mpi.fields import IDLE_COMMAND, LAUNCHER, SpecField
from tarragon.frameworks.mpi.objects.host_files import host_file_name
from tarragon.frameworks.mpi.objects.names import CONFIG_PATH, HOST_FILE
from tarragon.frameworks.mpi.objects.pod_wiring import SSHD
from tarragon.frameworks.mpi.options import SSH_PATH, Transport, options_of
from tarragon.job.model import ReplicaSpec, ReplicaType, TrainingJob
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container

_IDLE = ((), IDLE_COMMAND, SSHD)
"""The commands of workers that only wait for mpirun. Each generation starts the one that it needs by default."""


def _transport(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    path, new = _path(before, LAUNCHER), options_of(after.job).transport
    if options_of(before.job).transport is new:
        return
    if new is Transport.EXEC:
        words = "mpirun reaches the workers by exec through the API server, no longer by SSH, and there are no keys"
        yield Problem(path, f"in {after.name} {words}", "")
        return
    words = "mpirun reaches the workers by SSH, no longer by exec: images without sshd can't run"
    yield Problem(path, f"in {after.name} {words}", "use an image with ssh and sshd")
    workers = after.job.replica_spec(WORKER)
    if workers is not None and not _is_idle(workers):
        words = f"its command runs instead of sshd, which {after.name} needs"
        yield Problem(f"{_path(before, WORKER)}.template", words, "remove the command, or let it start sshd")


def _ssh_path(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    if options_of(before.job).ssh_path not in {SSH_PATH, options_of(after.job).ssh_path}:
        yield unsupported(f"spec.{SpecField.SSH_PATH}", after, "no keys are mounted", "")


def _implementation(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = options_of(before.job).implementation, options_of(after.job).implementation
    if old is not new:
        instead = f"{CONFIG_PATH}/{HOST_FILE} is that of {new}"
        others = host_file_name(new, old.host_file_format)
        advice = f"a command that reads it should read {CONFIG_PATH}/{others}; mpirun finds that by itself"
        yield unsupported(f"spec.{SpecField.IMPLEMENTATION}", after, instead, advice)


def _main_container(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = _rank_container(before.job), _rank_container(after.job)
    if old != new:
        instead = f"the ranks run in {new}, the first container"
        yield unsupported(f"spec.{SpecField.MAIN_CONTAINER}", after, instead, f"move {old} to the front")


def _launcher_start(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = (each.job.replica_spec(LAUNCHER) for each in (before, after))
    if old is not None and new is not None and old.starts_after != new.starts_after:
        instead = "the launcher is created once all workers are ready"
        yield unsupported(f"spec.{SpecField.CREATION}", after, instead, "")


def _launcher_works(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = options_of(before.job).launcher_works, options_of(after.job).launcher_works
    if old and not new:
        instead = "ranks run only in the workers"
        yield unsupported(f"spec.{SpecField.LAUNCHER_WORKS}", after, instead, "add a worker")
    elif new and not old:
        words = f"in {after.name} ranks run in the launcher too, because it has a GPU"
        yield Problem(_path(before, LAUNCHER), words, "remove the GPU from the launcher")


def _templates(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    """What one template for launcher and workers can't express."""
    for group in before.job.replica_specs:
        twin = after.job.replica_spec(group.type)
        if twin is None or not group.replicas:
            continue
        old, new = dict(_parts(group)), dict(_parts(twin))
        names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        path = f"{group.field_path}.template"
        if names:
            words = f"{after.name} has one template for all pods: {', '.join(names)} of the {group.type} can't be kept"
            yield Problem(path, words, "")


def _restarts(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    new = failure_fates(after.job)
    for kind, fate in failure_fates(before.job).items():
        if new.get(kind, fate) != fate:
            path = _path(before, kind)
            subject = "" if path.endswith(kind) else f"{kind}: "
            words = f"{subject}{DESCRIPTIONS[fate]}; in {after.name} {DESCRIPTIONS[new[kind]]}"
            yield Problem(path, words, remedy(new[kind], has_limit=after.has_limit))


def _backoff_limit(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = fatal_failure(before.job), fatal_failure(after.job)
    if old == new or (all_failures_are_final(before.job) and all_failures_are_final(after.job)):
        return
    is_nested = GENERATIONS[before.name].has_nested_policies or PolicyField.BACKOFF_LIMIT in (
        before.manifest["spec"].get(RUN_POLICY) or {}
    )
    path = f"spec.{RUN_POLICY}.{PolicyField.BACKOFF_LIMIT}" if is_nested else f"spec.{PolicyField.BACKOFF_LIMIT}"
    was = "no number of failures ends the job" if old is None else f"failure {old} ends the job"
    yield Problem(path, f"{was}; in {after.name} failure {new} does", "write the limit that you want")


def _parts(group: ReplicaSpec) -> Iterator[tuple[str, Json]]:
    """The template in parts that have a name. The name of the first container has no meaning."""
    template = group.template
    spec = template.get("spec", {})
    for name, value in template.get("metadata", {}).items():
        yield f"metadata.{name}", value
    for name, value in spec.items():
        if name not in {"containers", "restartPolicy"}:
            yield name, value
    for index, container in enumerate(spec.get("containers", [])):
        is_idle = index == 0 and group.type == WORKER and _is_idle(group)
        ignored = {"resources", *(("name",) if index == 0 else ()), *(("command", "args") if is_idle else ())}
        for name, value in container.items():
            if name not in ignored:
                yield f"containers[{index}].{name}", value
        for name, amounts in container.get("resources", {}).items():
            yield f"containers[{index}].resources.{name}", _amounts(amounts)


def _amounts(found: Json) -> Json:
    """The amounts as numbers: 1 and `1000m` are the same."""
    return {name: parse_milli(value) for name, value in found.items()} if isinstance(found, Mapping) else found


def _is_idle(workers: ReplicaSpec) -> bool:
    first: JsonObject = main_container(workers.template, "") or {}
    return tuple(first.get("command", ())) in _IDLE and not first.get("args")


def _rank_container(job: TrainingJob) -> str:
    """The container of the workers in which mpirun starts ranks; empty without workers."""
    workers, options = job.replica_spec(WORKER), options_of(job)
    if workers is None or not workers.replicas:
        return ""
    return options.main_container or str((main_container(workers.template, "") or {}).get("name", ""))


def _path(found: DecodedJob, kind: ReplicaType) -> str:
    group = found.job.replica_spec(kind)
    return group.field_path if group is not None else "spec"


TOPICS: Mapping[str, LossFinder] = MappingProxyType(
    {
        "transport": _transport,
        "sshAuthMountPath": _ssh_path,
        "mpiImplementation": _implementation,
        "launcherCreationPolicy": _launcher_start,
        "runLauncherAsWorker": _launcher_works,
        "mainContainer": _main_container,
        "templates": _templates,
        "restarts": _restarts,
        "backoffLimit": _backoff_limit,
    }
)
