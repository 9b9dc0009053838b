"""What a framework and a generation of its API have to say: two frozen records of functions.

A new framework is a folder and one line of the catalog; a new generation is one file with one Dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarragon.base.errors import Problem
from tarragon.job.exitcode import ExitCodeTable
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.phase import Signal
from tarragon.job.status import JobStatus
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Resource

__all__ = ["Dialect", "Framework", "Names", "Reading", "Sight", "Verdict", "Wiring"]

Manifest = Mapping[str, Any]
"""A job as its user wrote it: parsed YAML or JSON, nothing assumed about its shape."""

Size = Mapping[ReplicaType, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a dialect made of a manifest. With problems there is no job; unknown fields alone do not prevent one."""

    job: TrainingJob | None
    problems: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Fields that no version of this API has: the CLI refuses them, the operator runs the job and says so."""


@dataclass(frozen=True, slots=True)
class Names:
    """How a generation calls what belongs to a replica."""

    pod: Callable[[TrainingJob, Replica], str]
    service: Callable[[TrainingJob, Replica], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One generation of a framework's API. `name` is what the annotation tarragon.dev/generation holds."""

    name: str
    api_version: str
    recognise: Callable[[Manifest], bool]
    """Whether the *shape* is this generation's, beyond doubt; several may say yes, the catalog's order decides."""
    read: Callable[[Manifest], Reading]
    names: Names
    labels: Callable[[TrainingJob, Replica], dict[str, str]]
    selector: Callable[[TrainingJob], dict[str, str]]
    """Labels that all pods and services of the job carry, and no other job's."""
    status: Callable[[TrainingJob, JobStatus], dict[str, Any]]
    """The generation's own status fields (without `tarragon`), whole: what is not in it is to be absent."""
    condition_reason: Callable[[str], str]
    """The generation's word for a condition's reason: `Succeeded` -> `TFJobSucceeded`."""
    exit_codes: ExitCodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a replica must be told to find the others: goes into the named container (all of them when empty)."""

    container: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the judge sees: the job, the admitted size, the newest pod of each replica, and who has finished for good."""

    job: TrainingJob
    size: Size
    pods: Mapping[Replica, Pod]
    status: JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """At most one signal, with words for the condition; `failures` are the replicas it rests on."""

    signal: Signal | None
    message: str = ""
    failures: Sequence[Replica] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A kind of job. `resource` is its storage version; dialects are tried in order, the last is the fallback."""

    kind: str
    resource: Resource[CustomObject]
    dialects: Sequence[Dialect]
    rules: Sequence[Callable[[TrainingJob], Iterator[Problem]]]
    """Validation beyond shape; every rule is asked, all problems are told."""
    main_container: str
    """The container whose exit code is the replica's, whatever sidecars do; empty for the first one."""
    port_name: str
    """The named port of the main container that a replica's Service offers."""
    wire: Callable[[TrainingJob, Replica, Size], Wiring | None]
    objects: Callable[[TrainingJob, Size], Iterator[dict[str, Any]]]
    """Objects a job needs beside pods and services (config maps), without owner and namespace."""
    judge: Callable[[Sight, Dialect], Verdict]
    start_order: Sequence[ReplicaType]
    crd: Callable[[], dict[str, Any]]
    """The CustomResourceDefinition of the kind."""
