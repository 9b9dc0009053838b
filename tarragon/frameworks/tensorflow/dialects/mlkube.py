"""mlkube.io/v1beta1, the TfJob of 2017: a separate kind, whose object names contain the runtime id, not the job name.

Field names of its first spelling (`replica_specs`, `tf_port`, `tf_replica_type`) and its second one may be mixed. A
finished job (phase Done) keeps everything until its user deletes it.
"""

from __future__ import annotations

from tarragon.frameworks.plugin import Dialect, ObjectNames
from tarragon.frameworks.tensorflow.dialects.recognition import is_list
from tarragon.frameworks.tensorflow.replica_list import decoding, phase_status, runtime_id
from tarragon.frameworks.tensorflow.replica_list.rules import rules
from tarragon.frameworks.tensorflow.replica_list.tf_config import wire
from tarragon.job.exit_codes import MLKUBE
from tarragon.job.model import CleanPodPolicy

GROUP = "mlkube.io"
VERSION = "v1beta1"
KIND = "TfJob"
NAME = f"{GROUP}/{VERSION}"
PORT_NAME = "tf-port"

_LISTED = runtime_id.object_names(lambda _: "")
NAMES = ObjectNames(
    pod=_LISTED.service,
    service=_LISTED.service,
    replica_of=_LISTED.replica_of,
    tensorboard=lambda job: f"tensorboard-{job.runtime_id.lower()}",
)
"""The names of the batch Jobs that created the pods in the original operator; here they are the names of the pods."""

LABELS = runtime_id.RuntimeLabels(owner=GROUP, job="tf_job_name")
"""The labels, including the job's name as in v1alpha1: without it, pods of a deleted job could not be found."""

GENERATION = decoding.ListGeneration(name=NAME, api_version=NAME, kind=KIND, clean_pods=CleanPodPolicy.NONE)

DIALECT = Dialect(
    name=NAME,
    api_version=NAME,
    matches=is_list,
    decode=decoding.decoder(GENERATION),
    names=NAMES,
    labels=LABELS.of_replica,
    selector=LABELS.of_job,
    worker_selector=LABELS.of_workers,
    discovery_config=wire(NAMES),
    status_fields=phase_status.status_fields,
    invalid_job_fields=phase_status.invalid_job_fields,
    has_conditions=False,
    used_batch_jobs=True,
    has_cluster_ips=True,
    default_fields=decoding.default_fields,
    persistent_annotations=decoding.persistent_annotations,
    condition_reason=phase_status.reason_of,
    exit_codes=MLKUBE,
    rules=rules(NAMES),
    port_name=PORT_NAME,
)
