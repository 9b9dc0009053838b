"""Validation rules of MPIJob. All of them run, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.gpu_shares import gpu_shares, ignored_gpu_share_settings, job_has_no_gpu_share
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.rules import (
    chief_is_not_always_restarted,
    json_logs_have_a_command,
    min_available_is_effective,
    names_fit,
)
from tarragon.frameworks.mpi.fields import LAUNCHER, MIN_REPLICAS, SHAPE, SpecField
from tarragon.frameworks.mpi.manifest.rank_warnings import ranks_have_slots
from tarragon.frameworks.mpi.objects.names import NAMES
from tarragon.frameworks.mpi.options import Transport, options_of
from tarragon.frameworks.plugin import GangSize, Rule
from tarragon.job.annotations import validate_annotations, warn_about_misspelled_annotations
from tarragon.job.model import TrainingJob
from tarragon.job.tensorboard import validate_tensorboard

_ELASTIC = f"spec.{SpecField.ELASTIC_POLICY}"


def all_replicas(job: TrainingJob, size: GangSize) -> GangSize:
    """All replicas that may ever exist."""
    return size if job.elastic_policy is None else {**size, WORKER: job.elastic_policy.max_replicas}


def no_services(_: TrainingJob, __: GangSize) -> GangSize:
    """Replicas have no Services: those of v2beta1 share one, and older ones are reached by exec."""
    return {}


def one_launcher(job: TrainingJob) -> Iterator[Problem]:
    group = job.replica_spec(LAUNCHER)
    if group is None:
        yield Problem(f"{SHAPE.replica_specs_path}.{LAUNCHER}", "is missing", "add the pod that runs mpirun")
    elif group.replicas != 1:
        yield Problem(f"{group.field_path}.replicas", f"must be 1, not {group.replicas}", "a job has one Launcher")


def workers_present(job: TrainingJob) -> Iterator[Problem]:
    """v2beta1 lets a job have no workers, but not a Worker with none."""
    group = job.replica_spec(WORKER)
    if group is not None and group.replicas < 1:
        yield Problem(f"{group.field_path}.replicas", "must be 1 or more", "remove Worker to run only the launcher")


def elastic_bounds(job: TrainingJob) -> Iterator[Problem]:
    if job.elastic_policy is None:
        return
    least, most = job.elastic_policy.min_replicas, job.elastic_policy.max_replicas
    if least > most:
        yield Problem(f"{_ELASTIC}.{MIN_REPLICAS}", f"must be {most} or less, as maxReplicas is, not {least}")
    if job.replica_spec(WORKER) is None:
        yield Problem(SHAPE.replica_specs_path, f"has no {WORKER}, but elasticPolicy counts workers", "add a Worker")


def ssh_path_is_absolute(job: TrainingJob) -> Iterator[Problem]:
    path = options_of(job).ssh_path
    if options_of(job).transport is Transport.SSH and not path.startswith("/"):
        yield Problem(f"spec.{SpecField.SSH_PATH}", f"must be an absolute path, not {path!r}", "write /root/.ssh")


RULES: tuple[Rule, ...] = (
    one_launcher,
    *POD_RULES,
    gpu_shares,
    job_has_no_gpu_share,
    names_fit(NAMES.pod, all_replicas),
    elastic_bounds,
    ssh_path_is_absolute,
    validate_annotations,
)
WARNING_RULES: tuple[Rule, ...] = (
    chief_is_not_always_restarted,
    ignored_gpu_share_settings,
    warn_about_misspelled_annotations,
    validate_tensorboard,
    json_logs_have_a_command(SHAPE, default_commands={WORKER}),
    ranks_have_slots,
    min_available_is_effective(f"if the job can run with fewer workers, set {_ELASTIC}"),
)
V2BETA1_RULES: tuple[Rule, ...] = (workers_present,)
