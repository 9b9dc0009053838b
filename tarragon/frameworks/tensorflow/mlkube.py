"""mlkube.io/v1beta1, the TfJob of 2017: a kind of its own, whose objects are called after its runtime id alone.

Its first spelling (`replica_specs`, `tf_port`, `tf_replica_type`) and its second one may stand side by side. When the
job is done everything is kept until its user deletes it: phase Done.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.plugin import Dialect, Manifest, Names, Reading
from tarragon.frameworks.tensorflow import default_server, listed, phases, runtime
from tarragon.frameworks.tensorflow.listed_rules import rules
from tarragon.frameworks.tensorflow.listed_wiring import wire
from tarragon.frameworks.tensorflow.recognition import is_list
from tarragon.job.exitcode import OF_MLKUBE
from tarragon.job.model import CleanPodPolicy, TensorBoard
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import Notes, Reader

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

TENSORBOARD = "tensorboard"
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")

GENERATION = listed.Generation(
    name=NAME, api_version=NAME, kind=KIND, clean_pods=CleanPodPolicy.NONE, fields=frozenset({TENSORBOARD})
)


def read(manifest: Manifest) -> Reading:
    """As v1alpha1 is read, and the TensorBoard."""
    reading = listed.read(manifest, GENERATION)
    if reading.job is None:
        return reading
    notes = Notes()
    spec = Reader(manifest, "", notes).field("spec")
    return replace(
        reading,
        job=replace(reading.job, tensorboard=_tensorboard(spec.field(TENSORBOARD), spec)),
        problems=[*reading.problems, *notes.problems],
        unknown=[*reading.unknown, *notes.unknown],
    )


def _tensorboard(found: Reader, spec: Reader) -> TensorBoard | None:
    if found.is_missing or not found.is_map():
        return None
    found.only(("logDir", "serviceType", "volumeMounts", "volumes"))
    folder = found.field("logDir")
    if not folder.text():
        folder.problem("is missing", "write the folder that the summaries are in")
    service = found.field("serviceType").text() or SERVICE_TYPES[0]
    if service not in SERVICE_TYPES:
        remedy = f"write one of {', '.join(SERVICE_TYPES)}"
        found.field("serviceType").problem(f"must be a type of Service, not {service}", remedy)
    return TensorBoard(
        log_dir=folder.text(),
        image=Reader(spec.value, "", Notes()).field(listed.IMAGE).text() or default_server.IMAGE,
        volumes=checked(found.field("volumes"), "[Volume") or (),
        mounts=checked(found.field("volumeMounts"), "[VolumeMount") or (),
        service_type=service,
    )


DIALECT = Dialect(
    name=NAME,
    api_version=NAME,
    recognise=is_list,
    read=read,
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
