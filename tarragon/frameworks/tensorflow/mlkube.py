"""mlkube.io/v1beta1, the TfJob of 2017: a kind of its own, whose objects are called after its runtime id alone.

Its first spelling (`replica_specs`, `tf_port`, `tf_replica_type`) and its second one may stand side by side. When the
job is done everything is kept until its user deletes it: phase Done.
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
"""Pods were made by batch Jobs of these names; without those, the names are theirs."""

LABELS = runtime.RuntimeLabels(owner=GROUP, job="tf_job_name")
"""With the job's name, as v1alpha1 had it: by the others nobody finds the pods of a job that is deleted."""

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
