"""What a framework and a generation of its API have to say: two frozen records of functions.

A new framework is a folder and one line of the catalog; a new generation is one file with one Dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from tarragon.base.errors import Problem
from tarragon.job import classic
from tarragon.job.exitcode import ExitCodeTable
from tarragon.job.member import Member
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.phase import Signal
from tarragon.job.status import JobStatus
from tarragon.kube.meta import CustomObject, Json, JsonObject, Resource
from tarragon.kube.names import LONGEST_LABEL

__all__ = ["Dialect", "Framework", "Manifest", "Names", "Reading", "Rule", "Sight", "Size", "Verdict", "Wiring"]

Manifest = JsonObject
"""A job as its user wrote it: parsed YAML or JSON, nothing assumed about its shape."""

Size = Mapping[ReplicaType, int]

Rule = Callable[[TrainingJob], Iterator[Problem]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a dialect made of a manifest. With problems the job is only a guess, good for finding more of them."""

    job: TrainingJob | None
    problems: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Fields that no version of this API has: the CLI refuses them, the operator runs the job and says so."""
    warnings: Sequence[Problem] = ()
    """What is legal, and probably not what was meant."""


def tensorboard_name(job: TrainingJob) -> str:
    """A service's name has 63 characters at most; of two long names that begin alike the end tells."""
    name, tail = job.key.name, "-tensorboard"
    if len(name) + len(tail) > LONGEST_LABEL:
        name = f"{name[: LONGEST_LABEL - len(tail) - 9]}-{sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return name + tail


@dataclass(frozen=True, slots=True)
class Names:
    """How a generation calls what belongs to a replica, and which replica a name belongs to (None: not ours)."""

    pod: Callable[[TrainingJob, Replica], str]
    service: Callable[[TrainingJob, Replica], str]
    replica: Callable[[TrainingJob, str], Replica | None]
    tensorboard: Callable[[TrainingJob], str] = tensorboard_name
    """Of its pod and its service: the name of no replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a replica must be told to find the others: goes into the named container (all of them when empty)."""

    container: str
    env: Mapping[str, str]
    command: Sequence[str] = ()
    """What the container runs, where its user left that to us."""


def _nothing(_: TrainingJob, __: JsonObject) -> dict[str, Json]:
    return {}


def _no_annotations(_: TrainingJob) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One generation of a framework's API. `name` is what the annotation tarragon.dev/generation holds."""

    name: str
    api_version: str
    recognise: Callable[[Manifest], bool]
    """Whether the shape may be this generation's. Where several say yes, the API version it was written in decides."""
    read: Callable[[Manifest], Reading]
    names: Names
    labels: Callable[[TrainingJob, Replica], dict[str, str]]
    selector: Callable[[TrainingJob], dict[str, str]]
    """Labels that all pods and services of the job carry, and no other job's."""
    worker_selector: Callable[[TrainingJob], dict[str, str]]
    """The same for the pods that the scale subresource counts."""
    wire: Callable[[TrainingJob, Size, str], Callable[[Replica], Wiring | None]]
    """For a gang of that size in that cluster domain. What all replicas share is computed once, before the first."""
    status: Callable[[TrainingJob, JobStatus], dict[str, Json]]
    """The generation's own status fields (without `tarragon`), whole: what is not in it is to be absent."""
    has_conditions: bool = True
    """Whether those fields hold conditions, counts and times. Where they can't, `status.tarragon.record` does."""
    had_batch_jobs: bool = False
    """Whether the operator of that time always had its pods made by batch Jobs, which go on without it."""
    refused: Callable[[JobStatus], dict[str, Json]] = classic.refused
    """The status fields of a job that can't be read, and so of one that can't be told more about."""
    written_back: Callable[[TrainingJob, JsonObject], dict[str, Json]] = _nothing
    """Fields of spec (given as it is) that the operator of that time filled in, and users look for; written with the
    mark."""
    lasting: Callable[[TrainingJob], dict[str, str]] = _no_annotations
    """Annotations that keep what the job was begun with and no edit of its spec changes; written with the mark."""
    rules: Sequence[Rule] = ()
    """Validation that only this generation has."""
    has_cluster_ips: bool = False
    """Whether its services have an address of their own; all later ones are headless."""
    port_name: str = ""
    """What it calls the port of the replicas, if not as its framework does."""
    condition_reason: Callable[[str], str]
    """The generation's word for a condition's reason: `Succeeded` -> `TFJobSucceeded`."""
    exit_codes: ExitCodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the judge sees: the job, the admitted size, what has become of each replica, and what is on record."""

    job: TrainingJob
    size: Size
    members: Mapping[Replica, Member]
    status: JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """At most one signal, with words for the condition; `failures` are the replicas it rests on."""

    signal: Signal | None
    message: str = ""
    failures: Sequence[Replica] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A kind of job. `resource` is its storage version; the last dialect is the fallback."""

    kind: str
    resource: Resource[CustomObject]
    dialects: Sequence[Dialect]
    rules: Sequence[Rule]
    """Validation beyond shape; every rule is asked, all problems are told."""
    cautions: Sequence[Rule]
    """The same for what is legal, and probably not what was meant."""
    unsupported: Sequence[Rule]
    """The same for what the API allows and Tarragon can't do yet: no job starts with it, and no started one ends."""
    main_container: str
    """The container whose exit code is the replica's, whatever sidecars do; empty for the first one."""
    port_name: str
    """The named port of the main container that every replica's Service offers; appended where it is missing."""
    service_size: Callable[[TrainingJob, Size], Size]
    """Of how many replicas there are to be Services: of an elastic job, of all that may ever come."""
    objects: Callable[[TrainingJob], Iterator[JsonObject]]
    """The ConfigMaps that its pods mount, without owner and namespace: never changed, named after the job's uid."""
    judge: Callable[[Sight], Verdict]
    start_order: Sequence[ReplicaType]
    crd: Callable[[], dict[str, Json]]
    """The CustomResourceDefinition of the kind."""
    is_optional: bool = False
    """Whether a cluster that does not have the kind is as good as any."""
