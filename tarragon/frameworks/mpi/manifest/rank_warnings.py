"""Warns about a number of ranks that mpirun can't start where it should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER, MIN_REPLICAS, V1ALPHA1, SpecField
from tarragon.frameworks.mpi.options import Implementation, Transport, options_of
from tarragon.job.model import ReplicaSpec, TrainingJob
from tarragon.kube.pod_validation import main_container

_RANKS = frozenset({"n", "np", "c"})
"""The options of mpirun for the number of ranks, without their dashes."""
_VALUES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("x", "bind-to", "map-by", "rank-by", "wdir", "wd", "path", "prefix", "ppn", "perhost"), 1),
        **dict.fromkeys(("mca", "gmca", "prtemca", "pmixmca", "genv", "env"), 2),
    }
)
"""The number of values of other options that often come first; 0 for those that are not here."""
_OWN_HOSTS = re.compile(r"--?(H|hosts?|f|(host|machine|default-host|rank)file)$|.*oversubscribe", re.IGNORECASE)
"""Options with which the slots of the host file do not count."""


def ranks_have_slots(job: TrainingJob) -> Iterator[Problem]:
    """Warn if there are more ranks than slots, which Open MPI refuses, or no workers to run them in.

    Hydra, the mpirun of MPICH and Intel MPI, starts any number of ranks in a worker.
    """
    launcher, options = job.replica_spec(LAUNCHER), options_of(job)
    ranks = None if launcher is None else _ranks(launcher)
    if launcher is None or ranks is None:
        return
    path = f"{launcher.field_path}.template.spec.containers"
    hosts = _fewest_workers(job) + options.launcher_works
    slots = options.slots * hosts
    if not hosts and ranks > 1:
        fault = f"mpirun can start its {ranks} ranks only in the launcher, as the job has no workers"
        yield Problem(path, fault, _way_to_workers(job, ranks))
    elif hosts and ranks > slots and options.implementation is Implementation.OPEN_MPI:
        yield _too_few_slots(job, path, ranks, slots)


def _too_few_slots(job: TrainingJob, path: str, ranks: int, slots: int) -> Problem:
    shown = f"{slots} slot{'s' if slots != 1 else ''}"
    refused = f"mpirun will refuse to start {ranks} ranks, as there"
    if job.elastic_policy is not None:
        raised = f"slotsPerWorker or spec.{SpecField.ELASTIC_POLICY}.{MIN_REPLICAS}"
        return Problem(path, f"{refused} may be only {shown}", f"lower the number, or raise {raised}")
    remedy = "lower the number, raise slotsPerWorker or the number of workers, or add --oversubscribe"
    return Problem(path, f"{refused} {'is' if slots == 1 else 'are'} only {shown}", remedy)


def _way_to_workers(job: TrainingJob, ranks: int) -> str:
    if job.dialect == V1ALPHA1:
        return "set gpus or replicas"
    if options_of(job).transport is Transport.EXEC:
        return f"add a {WORKER}"
    works = f"{SpecField.LAUNCHER_WORKS}: true and {SpecField.SLOTS}: {ranks}"
    return f"add a {WORKER}; or, if that is meant, write {works}"


def _fewest_workers(job: TrainingJob) -> int:
    """The number of workers with which the job may run."""
    workers = job.replica_spec(WORKER)
    if workers is None:
        return 0
    return workers.replicas if job.elastic_policy is None else job.elastic_policy.min_replicas


def _ranks(launcher: ReplicaSpec) -> int | None:
    """The number of ranks in `mpirun --option -n 4 …`; None if it is not told plainly, or does not matter."""
    container = main_container(launcher.template, "") or {}
    program, *words = [*container.get("command", []), *container.get("args", [])] or [""]
    if program.rpartition("/")[2] not in {"mpirun", "mpiexec"} or any(map(_OWN_HOSTS.match, words)):
        return None
    number = _value_of_ranks(words)
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else None


def _value_of_ranks(words: Sequence[str]) -> str:
    """The word after the option for ranks; empty if the program comes first."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option = words[at].lstrip("-")
        if option in _RANKS:
            return next(iter(words[at + 1 :]), "")
        at += 1 + _VALUES.get(option, 0)
    return ""
