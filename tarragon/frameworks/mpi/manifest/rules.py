"""Validation rules of MPIJob. All of them run, so that all problems are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from tarragon.base.errors import Problem
from tarragon.frameworks.gpu_fractions import no_gpu_fractions
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.rules import (
    chief_is_not_always_restarted,
    json_logs_have_a_command,
    min_available_is_effective,
    names_fit,
)
from tarragon.frameworks.mpi.fields import LAUNCHER, MIN_REPLICAS, SHAPE, SpecField
from tarragon.frameworks.mpi.objects.names import NAMES
from tarragon.frameworks.mpi.options import Implementation, Transport, options_of
from tarragon.frameworks.plugin import GangSize, Rule
from tarragon.job.annotations import validate_annotations, warn_about_misspelled_annotations
from tarragon.job.model import TrainingJob
from tarragon.job.tensorboard import validate_tensorboard
from tarragon.kube.pod_validation import main_container

_RANKS = frozenset({"-n", "-np", "--np", "-c"})
"""The options of mpirun for the number of ranks."""
_OWN_HOSTS = re.compile(r"--?(H|hosts?|f|(host|machine|default-host|rank)file)$|.*oversubscribe", re.IGNORECASE)
"""Options with which the slots of the host file do not count."""
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


def ranks_have_slots(job: TrainingJob) -> Iterator[Problem]:
    """Warn if Open MPI is told to start more ranks than the workers have slots: it would refuse.

    Hydra, the mpirun of MPICH and Intel MPI, starts them all the same.
    """
    launcher, workers, options = job.replica_spec(LAUNCHER), job.replica_spec(WORKER), options_of(job)
    if launcher is None or workers is None or job.elastic_policy is not None:
        return
    container = main_container(launcher.template, "") or {}
    ranks = _ranks_of_open_mpi([*container.get("command", []), *container.get("args", [])])
    slots = options.slots * (workers.replicas + options.launcher_works)
    if options.implementation is Implementation.OPEN_MPI and ranks is not None and ranks > slots:
        yield Problem(
            f"{launcher.field_path}.template.spec.containers",
            f"mpirun will refuse to start {ranks} ranks, as there are only {slots} slots",
            "lower the number, raise slotsPerWorker or the number of workers, or add --oversubscribe",
        )


def _ranks_of_open_mpi(command: Sequence[str]) -> int | None:
    """The number of ranks in `mpirun --option -n 4 …`; None if it is not among the first words, or does not matter."""
    if not command or command[0].rpartition("/")[2] not in {"mpirun", "mpiexec"} or any(map(_OWN_HOSTS.match, command)):
        return None
    options = list(takewhile(lambda word: word.startswith("-"), command[1:]))
    if not options or options[-1] not in _RANKS:
        return None
    number = next(iter(command[len(options) + 1 :]), "")
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else None


def ssh_path_is_absolute(job: TrainingJob) -> Iterator[Problem]:
    path = options_of(job).ssh_path
    if options_of(job).transport is Transport.SSH and not path.startswith("/"):
        yield Problem(f"spec.{SpecField.SSH_PATH}", f"must be an absolute path, not {path!r}", "write /root/.ssh")


RULES: tuple[Rule, ...] = (
    one_launcher,
    *POD_RULES,
    names_fit(NAMES.pod, all_replicas),
    elastic_bounds,
    ssh_path_is_absolute,
    validate_annotations,
)
WARNING_RULES: tuple[Rule, ...] = (
    chief_is_not_always_restarted,
    warn_about_misspelled_annotations,
    validate_tensorboard,
    json_logs_have_a_command(SHAPE),
    ranks_have_slots,
    min_available_is_effective(f"if the job can run with fewer workers, set {_ELASTIC}"),
)
UNSUPPORTED_RULES: tuple[Rule, ...] = (no_gpu_fractions,)
V2BETA1_RULES: tuple[Rule, ...] = (workers_present,)
