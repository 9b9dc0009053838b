"""The plug-in interface: `Framework` describes a kind of job, `Dialect` one generation of its API.

To add a framework, add a folder and an entry in `registry.py`; tests/frameworks/toy is the smallest one. To add a
generation, add a module with one Dialect.
"""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256

from tarragon.base.errors import Problem
from tarragon.frameworks.image_software import ImageSoftware
from tarragon.frameworks.log_causes import LogCause
from tarragon.frameworks.owned_objects import OwnedContent, OwnedObject, RequiredPermission
from tarragon.frameworks.script_job import ScriptSupport
from tarragon.frameworks.script_needs import NeededVariable, ScriptMistake
from tarragon.job import training_operator_status
from tarragon.job.exit_codes import ExitCodeTable
from tarragon.job.model import Replica, ReplicaRole, ReplicaType, TrainingJob
from tarragon.job.phase import JobSignal
from tarragon.job.replica_state import ReplicaState
from tarragon.job.status import JobStatus
from tarragon.kube.meta import CustomObject, Json, JsonObject, Resource
from tarragon.kube.name_validation import DNS_LABEL_MAX_LENGTH

__all__ = [
    "BackoffCount",
    "DecodedManifest",
    "Dialect",
    "DiscoveryConfig",
    "FieldOption",
    "Framework",
    "GangSize",
    "JobObservation",
    "Manifest",
    "ObjectNames",
    "Rule",
    "StateReview",
    "Verdict",
]

Manifest = JsonObject
"""A job as the user wrote it: parsed YAML or JSON of unknown structure."""

GangSize = Mapping[ReplicaType, int]

Rule = Callable[[TrainingJob], Iterator[Problem]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedManifest:
    """A manifest decoded by a dialect. If there are problems, the job is only a guess, used to find more problems."""

    job: TrainingJob | None
    problems: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Fields that no version of this API has. The CLI rejects them; the operator runs the job with a warning."""
    warnings: Sequence[Problem] = ()
    """Legal values that are probably mistakes."""


def tensorboard_name(job: TrainingJob) -> str:
    """The name of a job's TensorBoard. A name beyond the limit of Services is truncated and gets a hash."""
    name, suffix = job.key.name, "-tensorboard"
    if len(name) + len(suffix) > DNS_LABEL_MAX_LENGTH:
        digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[: DNS_LABEL_MAX_LENGTH - len(suffix) - 9]}-{digest}"
    return name + suffix


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """The object names of a generation, and the reverse: the replica of a pod's name, or None."""

    pod: Callable[[TrainingJob, Replica], str]
    service: Callable[[TrainingJob, Replica], str]
    replica_of: Callable[[TrainingJob, str], Replica | None]
    tensorboard: Callable[[TrainingJob], str] = tensorboard_name
    """The name of the TensorBoard's pod and Service. It is not the name of any replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDelivery:
    """A file of the operator's image that an init container copies into a volume of the pod."""

    source: str
    target: str
    container: JsonObject
    """The init container, but for its image and its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """What a pod gets so that its replica finds the others, and the others find it.

    An empty `container` means all containers.
    """

    container: str
    env: Mapping[str, str]
    """Variables that replace the user's of the same name."""
    default_env: Mapping[str, str] = field(default_factory=dict)
    """Variables for a container that does not set them."""
    command: Sequence[str] = ()
    """The command of the container, if the operator provides the program."""
    volume_mounts: Sequence[JsonObject] = ()
    volumes: Sequence[JsonObject] = ()
    """Volumes of the pod, for these mounts. They replace the user's of the same name."""
    deliveries: Sequence[FileDelivery] = ()
    """Files that are copied before the user's init containers run."""
    pod_fields: JsonObject = field(default_factory=dict)
    """Fields of the pod's spec, such as `subdomain`. They replace the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobService:
    """A headless Service of the whole job, under which each of its pods with a `hostname` has a DNS name."""

    name: str
    selector: Mapping[str, str]


def _no_service(_: TrainingJob) -> JobService | None:
    return None


def _nothing(_: TrainingJob, __: JsonObject) -> dict[str, Json]:
    return {}


def _not_configured(_: JsonObject, __: JsonObject) -> dict[str, Json]:
    return {}


def _no_warnings(_: Manifest, __: Json) -> Iterator[Problem]:
    return iter(())


def _no_annotations(_: TrainingJob) -> dict[str, str]:
    return {}


class BackoffCount(Enum):
    """What exceeds a job's backoffLimit. Disruptions never count."""

    RESTARTS = "restarts"
    """As many restarts as the limit, of all replicas, by a new pod or in place, as in all generations of TFJob."""
    BATCH_JOB = "batch job"
    """More failures than the limit, as in the batch Job that ran the chief in these generations, which also ended when
    as many restarts of the chief in place as the limit had been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMirror:
    """Fields of a job's status that show the pod of its only replica, whole and as it is."""

    names: frozenset[str]
    fields: Callable[[JsonObject], dict[str, Json]]
    """The fields that show this pod."""
    shown_version: Callable[[Mapping[str, Json]], Json]
    """The resourceVersion of the pod that a status shows; None if it shows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One generation of a framework's API. `name` is the value of the annotation tarragon.dev/generation."""

    name: str
    api_version: str
    matches: Callable[[Manifest], bool]
    """Whether a manifest's structure matches this generation. If several match, the API version decides."""
    recognition_warnings: Callable[[Manifest, Json], Iterator[Problem]] = _no_warnings
    """Warnings for a new manifest that is of this generation although the API version that the user wrote, the second
    argument, is another one."""
    decode: Callable[[Manifest], DecodedManifest]
    names: ObjectNames
    labels: Callable[[TrainingJob, Replica], dict[str, str]]
    selector: Callable[[TrainingJob], dict[str, str]]
    """Labels that all pods and services of the job have, and those of no other job."""
    worker_selector: Callable[[TrainingJob], dict[str, str]]
    """Labels of the pods that the scale subresource counts."""
    discovery_config: Callable[[TrainingJob, GangSize, str], Callable[[Replica], DiscoveryConfig | None]]
    """The wiring for a gang size and a cluster domain. What all replicas share is computed once, in the first call."""
    job_service: Callable[[TrainingJob], JobService | None] = _no_service
    """The Service of the whole job, beside or instead of those of its replicas."""
    status_fields: Callable[[TrainingJob, JobStatus], dict[str, Json]]
    """The complete status fields of the generation, without `tarragon`. Fields that are missing here are removed, but
    for `conditions`, which every job has.
    """
    pod_mirror: PodMirror | None = None
    """Further fields, which show a pod; None if there are none."""
    has_conditions: bool = True
    """Whether the generation has fields for conditions, counts and times. If not, `status.tarragon.record` does, and
    they are read from there.
    """
    used_batch_jobs: bool = False
    """Whether the original operator created its pods by batch Jobs, which continue without it."""
    invalid_job_fields: Callable[[JobStatus], dict[str, Json]] = training_operator_status.invalid_job_fields
    """The status fields of a job that can't be decoded."""
    default_fields: Callable[[TrainingJob, JsonObject], dict[str, Json]] = _nothing
    """Fields that the original operator filled into the spec and that users look for. They are written together with
    the generation annotation. The second argument is the spec as it is."""
    configured_fields: Callable[[JsonObject, JsonObject], dict[str, Json]] = _not_configured
    """Fields of a new job's spec, the first argument, that the operator's options, the second one, fill in. They are
    written in the same way, so that everybody who reads the job later finds the same values."""
    persistent_annotations: Callable[[TrainingJob], dict[str, str]] = _no_annotations
    """Annotations for what must not change with the spec once the job has started; written together with the
    generation annotation."""
    rules: Sequence[Rule] = ()
    """Validation rules of this generation only."""
    has_cluster_ips: bool = False
    """Whether the services have a cluster IP; those of all later generations are headless."""
    port_name: str = ""
    """The name of the replicas' port, if it differs from that of the framework."""
    condition_reason: Callable[[str], str]
    """The generation's spelling of a condition's reason: `Succeeded` -> `TFJobSucceeded`."""
    exit_codes: ExitCodeTable
    backoff_count: BackoffCount = BackoffCount.RESTARTS


@dataclass(frozen=True, slots=True)
class ConversionLoss:
    """Something that the target generation can't express.

    `topic` is its name in the docs. The problem's path is that in the source, its message says what happens instead.
    """

    topic: str
    problem: Problem

    def __str__(self) -> str:
        return str(self.problem)


@dataclass(frozen=True, slots=True)
class ConvertedManifest:
    """A converted manifest, without the fields that a server fills in."""

    manifest: Manifest
    losses: Sequence[ConversionLoss] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConversion:
    """Conversion between the generations of an API, which may be of several kinds. They are named as their dialects."""

    generations: Sequence[str]
    """All generations, oldest first."""
    newest: str
    """The generation that users should convert to."""
    convert: Callable[[Manifest, str, str], ConvertedManifest]
    """Convert a valid manifest from one generation to another."""
    normalize_for_diff: Callable[[Manifest, Manifest, str], tuple[Manifest, Manifest]]
    """Return a live and a new manifest of one generation without differences in defaults and server fields."""


def _unchanged(manifest: Manifest) -> Manifest:
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class EditableFields:
    """What commands such as `scale` and `suspend` change in a manifest, as paths."""

    suspend: str = ""
    min_replicas: str = ""
    """The bounds of an elastic job; empty if its kind has none."""
    max_replicas: str = ""
    without_scaled_size: Callable[[Manifest], Manifest] = _unchanged
    """Remove a size that `kubectl scale` has written beside the replica specs, and that overrides them."""
    without_gpu_count: Callable[[Manifest], Manifest] = _unchanged
    """Replace a number of GPUs from which the workers follow by the number of workers, which then request none."""
    without_derived_fields: Callable[[Manifest], Manifest] = _unchanged
    """Remove fields that were derived from the live job, so that a new job gets its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObservation:
    """What a framework decides on: the job, its admitted size, the state of each replica, the recorded status."""

    job: TrainingJob
    size: GangSize
    replicas: Sequence[Replica]
    """The admitted replicas. Indexes of an elastic job's workers may have gaps after a shrink."""
    replica_states: Mapping[Replica, ReplicaState]
    status: JobStatus
    cluster_domain: str = ""
    """The DNS domain of the cluster, where host names contain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReview:
    """The result of `Framework.review_states`: the states of the same replicas, by which all further rules go."""

    states: Mapping[Replica, ReplicaState]
    next_at: dt.datetime | None = None
    """When to review them again, even if nothing happens until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of `Framework.evaluate`: at most one signal with a message, and the replicas that caused a failure."""

    signal: JobSignal | None
    message: str = ""
    failed_replicas: Sequence[Replica] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalMetrics:
    """The metrics that an original operator had: whether it leads, and how many jobs went through a transition."""

    prefix: str
    counters: Mapping[str, str]
    """By Tarragon's name of a transition, such as `succeeded`, the original one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOption:
    """An option of the operator for a field of spec that new jobs lack. `Dialect.configured_fields` writes it."""

    flag: str
    field: str
    default: int | str
    """The API's own default, which is not written."""
    choices: Sequence[str] = ()
    """The values; empty for a number from 1."""
    help: str


def _unreviewed(observation: JobObservation, _: dt.datetime) -> StateReview:
    return StateReview(states=observation.replica_states)


def _no_mistakes(_: TrainingJob, __: JobStatus) -> Iterator[Problem]:
    return iter(())


def _no_needs(_: Sequence[ast.Module], __: Mapping[str, str], ___: int) -> Iterator[NeededVariable | ScriptMistake]:
    return iter(())


def _no_needs_of_image(_: Sequence[ast.Module], __: int) -> Iterator[NeededVariable | ScriptMistake]:
    return iter(())


def _has_all_replicas(_: Sequence[ast.Module], __: TrainingJob) -> Iterator[ScriptMistake]:
    return iter(())


def _one_program(_: TrainingJob, __: ReplicaType) -> int:
    return 1


def _own_metrics(_: TrainingJob) -> bool:
    return False


def _no_objects(_: JobObservation) -> Iterator[OwnedObject]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Framework:
    """A kind of job. `resource` is its storage version. The last dialect is the fallback.

    There is one value for each kind, compared and hashed by identity.
    """

    kind: str
    resource: Resource[CustomObject]
    short_names: Sequence[str] = ()
    """What kubectl accepts instead of the kind."""
    dialects: Sequence[Dialect]
    rules: Sequence[Rule]
    """Validation rules. All of them run, and all problems are reported."""
    warning_rules: Sequence[Rule]
    """Rules for legal values that are probably mistakes. Their problems are warnings."""
    main_container: str
    """The container whose exit code counts for the replica, whatever sidecars do; empty for the first one."""
    port_name: str
    """The port of the main container that every replica's Service exposes; added if it is missing."""
    service_size: Callable[[TrainingJob, GangSize], GangSize]
    """The number of replicas that need Services; for an elastic job, all that may ever exist."""
    evaluate: Callable[[JobObservation], Verdict]
    review_states: Callable[[JobObservation, dt.datetime], StateReview] = _unreviewed
    """Judge what the ends of pods mean for each other, where the pods themselves don't tell. The time is now.

    `unjudged` puts off the judgement of an end, and `disrupted` makes it one that other replicas have caused.
    """
    roles: Mapping[ReplicaType, ReplicaRole]
    """The replica types of the kind, in the order in which its documentation lists them."""
    start_order: Sequence[ReplicaType]
    """The order in which the pods of a job are created."""
    crd: Callable[[], dict[str, Json]]
    """The CustomResourceDefinition of the kind."""
    owned_objects: Callable[[JobObservation], Iterator[OwnedObject]] = _no_objects
    """The objects that the job needs beside its pods and Services, in the order in which they are created."""
    kept_current: Sequence[Resource[OwnedContent]] = ()
    """The kinds of those that are kept current; they are watched."""
    required_permissions: Sequence[RequiredPermission] = ()
    """The permissions for these objects."""
    operator_options: Sequence[FieldOption] = ()
    """The options of the operator for fields of its jobs."""
    has_plain_pods: bool = False
    """Whether its pods get no variables, log format or DNS policy that their manifest does not ask for."""
    can_expire: bool = True
    """Whether its jobs may have a ttlSecondsAfterFinished, after which the operator deletes them."""
    is_crd_optional: bool = False
    """Whether the CRD may be missing in a cluster."""
    editable_fields: EditableFields = EditableFields()
    conversion: ApiConversion | None = None
    """The conversion between the generations of the API; None if there is only one."""
    other_operators: frozenset[str] = frozenset()
    """The names of other operators that manage this kind where they are installed."""
    original_metrics: OriginalMetrics | None = None
    """The metrics of the original operator, which are published beside Tarragon's own."""
    likely_mistakes: Callable[[TrainingJob, JobStatus], Iterator[Problem]] = _no_mistakes
    """Mistakes in the manifest that how the job runs, or ended, makes likely."""
    log_causes: Sequence[LogCause] = ()
    """Errors of the framework's programs that users meet. They are recognised in the logs of all kinds of jobs."""
    scripts: ScriptSupport | None = None
    """How the kind runs a script; None if it can't."""
    programs_per_replica: Callable[[TrainingJob, ReplicaType], int] = _one_program
    """How many programs compute in a replica of that type at a time, as the ranks of a worker do."""
    image_software: Sequence[ImageSoftware] = ()
    """What the main containers need of the local environment that stands for their image. The first that an
    environment lacks is reported."""
    script_needs: Callable[[Sequence[ast.Module], Mapping[str, str], int], Iterator[NeededVariable | ScriptMistake]] = (
        _no_needs
    )
    """What a program of these modules needs in an environment with these packages and versions, in a job of at most so
    many replicas."""
    bars_sum_metrics: Callable[[TrainingJob], bool] = _own_metrics
    """Whether bars in the job's logs may show sums over its workers until an epoch is over, instead of metrics."""
    script_needs_of_image: Callable[[Sequence[ast.Module], int], Iterator[NeededVariable | ScriptMistake]] = (
        _no_needs_of_image
    )
    """What it needs in a recent image, whose packages nobody has looked at."""
    missing_replicas: Callable[[Sequence[ast.Module], TrainingJob], Iterator[ScriptMistake]] = _has_all_replicas
    """What the job lacks, as command-line options made it of a script, for a program of these modules."""
