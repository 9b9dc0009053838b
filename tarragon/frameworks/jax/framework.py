"""The Framework value of JAXJob: all that the rest of the program knows about JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.frameworks.gpu_shares import gpu_shares, ignored_gpu_share_settings, job_has_no_gpu_share
from tarragon.frameworks.image_software import python_library
from tarragon.frameworks.jax.log_causes import LOG_CAUSES
from tarragon.frameworks.jax.script_job import SCRIPTS
from tarragon.frameworks.kubeflow import field_descriptions as shared
from tarragon.frameworks.kubeflow.crd import SELECTABLE_FIELDS, definition, with_cel_rules, with_selectable_fields
from tarragon.frameworks.kubeflow.decoding import Generation, decoder
from tarragon.frameworks.kubeflow.fields import GROUP, SUSPEND_PATH, WORKER, condition_reason
from tarragon.frameworks.kubeflow.labels import since_training_operator_1_7
from tarragon.frameworks.kubeflow.object_names import object_names
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.rules import (
    chief_is_not_always_restarted,
    has_main_container,
    json_logs_have_a_command,
    min_available_is_effective,
    names_fit,
)
from tarragon.frameworks.kubeflow.schema import job_schema
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.frameworks.kubeflow.verdict import evaluate
from tarragon.frameworks.plugin import Dialect, DiscoveryConfig, EditableFields, Framework, GangSize
from tarragon.job import conditions
from tarragon.job.annotations import validate_annotations, warn_about_misspelled_annotations
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Decides, Replica, ReplicaRole, SuccessPolicy, TrainingJob
from tarragon.job.tensorboard import validate_tensorboard
from tarragon.job.training_operator_status import status_fields
from tarragon.kube.meta import CustomObject, Json, Resource

SHAPE = KindShape(
    kind="JAXJob",
    replica_specs="jaxReplicaSpecs",
    roles=MappingProxyType({WORKER: ReplicaRole(decides=Decides.WITHOUT_CHIEF, is_elastic=True)}),
    main_container="jax",
    port_name="jaxjob-port",
    default_port=6666,
    success_policy=SuccessPolicy.ALL_WORKERS,
    # jax.distributed ends every process within two minutes after it has lost one, and none can join later.
    restarts_together=True,
)
JAXJOBS = Resource(group=GROUP, version="v1", plural="jaxjobs", kind=SHAPE.kind, model=CustomObject)
NAMES = object_names(SHAPE.roles)
LABELS = since_training_operator_1_7("jaxjob-controller")
COORDINATOR = Replica(WORKER, 0)

DESCRIPTIONS = MappingProxyType(
    {
        "": "A JAX training job. Its workers find worker 0, the coordinator, and start together or not at all.",
        "jaxReplicaSpecs": "The workers, under the key Worker. The job succeeds when all of them have.",
        "template": "The pod template. Only the container named jax decides whether the worker succeeds.",
    }
)
CEL_RULES = MappingProxyType({f"has(self.{SHAPE.replica_specs})": "the job has no replicas"})
CONDITION_DESCRIPTIONS = MappingProxyType({**shared.CONDITION_DESCRIPTIONS, conditions.RUNNING: "A worker is running."})


def all_workers(_: TrainingJob, size: GangSize) -> GangSize:
    return size


def has_workers(job: TrainingJob) -> Iterator[Problem]:
    if job.chief is None:
        yield Problem(SHAPE.replica_specs_path, "has no replicas", "set the replicas of Worker to 1 or more")


def discovery_config(job: TrainingJob, size: GangSize, _: str) -> Callable[[Replica], DiscoveryConfig]:
    """The arguments of `jax.distributed.initialize`, which worker 0 gets like all others: it serves at that address."""
    workers = job.replica_spec(WORKER)
    shared = {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": str(SHAPE.default_port if workers is None else workers.port),
        "COORDINATOR_ADDRESS": NAMES.service(job, COORDINATOR),
        "NUM_PROCESSES": str(size.get(WORKER, 0)),
    }
    return lambda replica: DiscoveryConfig(container="", env={**shared, "PROCESS_ID": str(replica.index)})


def crd() -> dict[str, Json]:
    defined = definition(JAXJOBS, (JAXJOBS.version,), lambda: job_schema(SHAPE, DESCRIPTIONS), SHAPE.replica_specs)
    return with_cel_rules(with_selectable_fields(defined, SELECTABLE_FIELDS), CEL_RULES)


DIALECT = Dialect(
    name=JAXJOBS.api_version,
    api_version=JAXJOBS.api_version,
    matches=lambda _: True,
    decode=decoder(
        SHAPE,
        Generation(name=JAXJOBS.api_version, api_version=JAXJOBS.api_version, clean_pods=CleanPodPolicy.NONE),
    ),
    names=NAMES,
    labels=LABELS.of_replica,
    selector=LABELS.of_job,
    worker_selector=LABELS.of_workers,
    discovery_config=discovery_config,
    status_fields=status_fields,
    condition_reason=condition_reason(SHAPE.kind, invalid="JAXJobFailedValidation"),
    exit_codes=SINCE_TRAINING_OPERATOR_1_5,
)

JAX = Framework(
    kind=SHAPE.kind,
    resource=JAXJOBS,
    dialects=(DIALECT,),
    rules=(
        has_workers,
        *POD_RULES,
        gpu_shares,
        job_has_no_gpu_share,
        has_main_container(SHAPE),
        names_fit(NAMES.pod, all_workers),
        validate_annotations,
    ),
    warning_rules=(
        chief_is_not_always_restarted,
        ignored_gpu_share_settings,
        warn_about_misspelled_annotations,
        validate_tensorboard,
        json_logs_have_a_command(SHAPE),
        min_available_is_effective("remove it"),
    ),
    main_container=SHAPE.main_container,
    port_name=SHAPE.port_name,
    service_size=all_workers,
    evaluate=evaluate,
    roles=SHAPE.roles,
    start_order=(WORKER,),
    crd=crd,
    is_crd_optional=True,
    editable_fields=EditableFields(suspend=SUSPEND_PATH),
    other_operators=frozenset({"training-operator"}),
    scripts=SCRIPTS,
    image_software=(python_library("JAX", "jax", ("jax",)),),
    log_causes=LOG_CAUSES,
)
