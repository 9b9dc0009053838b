"""mlkube.io/v1beta1, the TfJob of 2017: a separate kind, whose object names contain the runtime id, not the job name.

Field names of its first spelling (`replica_specs`, `tf_port`, `tf_replica_type`) and its second one may be mixed. A
finished job (phase Done) keeps everything until its user deletes it.
"""

from __future__ import annotations

from tarragon.frameworks.plugin import Dialect, Names
from tarragon.frameworks.tensorflow import listed, phases, runtime
from tarragon.frameworks.tensorflow.listed_rules import rules
from tarragon.frameworks.tensorflow.listed_wiring import wire
from tarragon.frameworks.tensorflow.recognition import is_list
from tarragon.job.exitcode import OF_MLKUBE
from tarragon.job.model import CleanPodPolicy

GROUP = "mlkube.io"
VERSION = "v1beta1"
KIND = "TfJob"
NAME = f"{GROUP}/{VERSION}"
PORT_NAME = "tf-port"

_LISTED = runtime.names(lambda _: "")
NAMES = Names(
    pod=_LISTED.service,
    service=_LISTED.service,
    replica=_LISTED.replica,
    tensorboard=lambda job: f"tensorboard-{job.runtime_id.lower()}",
)
"""The names of the batch Jobs that created the pods in the original operator; here they are the names of the pods."""

LABELS = runtime.RuntimeLabels(owner=GROUP, job="tf_job_name")
"""The labels, including the job's name as in v1alpha1: without it, pods of a deleted job could not be found."""

GENERATION = listed.Generation(name=NAME, api_version=NAME, kind=KIND, clean_pods=CleanPodPolicy.NONE)

DIALECT = Dialect(
    name=NAME,
    api_version=NAME,
    recognise=is_list,
    read=listed.reader(GENERATION),
    names=NAMES,
    labels=LABELS.of_replica,
    selector=LABELS.of_job,
    worker_selector=LABELS.of_workers,
    wire=wire(NAMES),
    status=phases.write,
    refused=phases.refused,
    has_conditions=False,
    had_batch_jobs=True,
    has_cluster_ips=True,
    written_back=listed.written_back,
    lasting=listed.lasting,
    condition_reason=phases.reason_of,
    exit_codes=OF_MLKUBE,
    rules=rules(NAMES),
    port_name=PORT_NAME,
)
