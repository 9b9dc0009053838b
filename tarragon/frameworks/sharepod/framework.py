"""The Framework value of SharePod: all that the rest of the program knows about it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from tarragon.frameworks.gpu_shares import gpu_shares, ignored_gpu_share_settings
from tarragon.frameworks.kubeflow.fields import condition_reason
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.verdict import evaluate
from tarragon.frameworks.plugin import Dialect, DiscoveryConfig, Framework, GangSize, ObjectNames
from tarragon.frameworks.sharepod.crd import SHORT_NAMES, crd
from tarragon.frameworks.sharepod.fields import ONLY_REPLICA, POD, ROLES, SHAREPODS
from tarragon.frameworks.sharepod.manifest import decode, name_fits, of_the_object
from tarragon.frameworks.sharepod.mirror import MIRROR, invalid_job_fields, status_fields
from tarragon.frameworks.sharepod.pod_end import review_pod_end
from tarragon.job.annotations import validate_annotations, warn_about_misspelled_annotations
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.tensorboard import validate_tensorboard
from tarragon.kube.name_validation import DNS_LABEL_MAX_LENGTH

NAME_LABEL = "tarragon.dev/sharepod"
"""The label of a SharePod's pod beside those of the SharePod, so that the pods of one can be selected."""


def object_name(job: TrainingJob, _: Replica) -> str:
    return job.key.name


def replica_of(job: TrainingJob, name: str) -> Replica | None:
    return ONLY_REPLICA if name == job.key.name else None


def selector(job: TrainingJob) -> dict[str, str]:
    """The label of its pod. A name that is too long for a label is truncated and gets a hash."""
    name = job.key.name
    if len(name) > DNS_LABEL_MAX_LENGTH:
        digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[: DNS_LABEL_MAX_LENGTH - 9]}-{digest}"
    return {NAME_LABEL: name}


def labels(job: TrainingJob, _: Replica) -> dict[str, str]:
    return selector(job)


def no_discovery(_: TrainingJob, __: GangSize, ___: str) -> Callable[[Replica], DiscoveryConfig | None]:
    return lambda _: None


def no_services(_: TrainingJob, __: GangSize) -> GangSize:
    return {}


DIALECT = Dialect(
    name=SHAREPODS.api_version,
    api_version=SHAREPODS.api_version,
    matches=lambda _: True,
    decode=decode,
    names=ObjectNames(pod=object_name, service=object_name, replica_of=replica_of),
    labels=labels,
    selector=selector,
    worker_selector=selector,
    discovery_config=no_discovery,
    status_fields=status_fields,
    invalid_job_fields=invalid_job_fields,
    pod_mirror=MIRROR,
    has_conditions=False,
    condition_reason=condition_reason(SHAREPODS.kind, invalid="ErrValueError"),
    exit_codes=SINCE_TRAINING_OPERATOR_1_5,
)

SHAREPOD = Framework(
    kind=SHAREPODS.kind,
    resource=SHAREPODS,
    short_names=SHORT_NAMES,
    dialects=(DIALECT,),
    rules=(*map(of_the_object, (*POD_RULES, gpu_shares)), name_fits, validate_annotations),
    warning_rules=(
        of_the_object(ignored_gpu_share_settings),
        warn_about_misspelled_annotations,
        validate_tensorboard,
    ),
    main_container="",
    port_name="",
    service_size=no_services,
    evaluate=evaluate,
    review_states=review_pod_end,
    roles=ROLES,
    start_order=(POD,),
    crd=crd,
    has_plain_pods=True,
    can_expire=False,
    is_crd_optional=True,
    other_operators=frozenset({"KubeShare"}),
)
