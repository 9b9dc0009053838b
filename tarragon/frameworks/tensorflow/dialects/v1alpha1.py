"""kubeflow.org/v1alpha1 of tf-operator 0.1 to 0.3: a list of replicas, a master that decides the job, a runtime id.

The exit code of the master (or of the replica in terminationPolicy) decides. Its pod is not restarted by the kubelet,
so that a permanent failure runs once and keeps its log. In a pod of the original operator the kubelet may have
restarted it; there the first end counts. All other replicas are restarted whenever they fail, and never fail the job.
"""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.tensorflow.dialects.recognition import is_list_or_v1alpha1
from tarragon.frameworks.tensorflow.replica_list import decoding, phase_status, runtime_id
from tarragon.frameworks.tensorflow.replica_list.rules import rules
from tarragon.frameworks.tensorflow.replica_list.tf_config import wire
from tarragon.job.exit_codes import V1ALPHA1
from tarragon.job.model import TrainingJob

NAME = f"{GROUP}/v1alpha1"
PORT_NAME = "tf-port"
LONGEST_BEGINNING = 40
"""The maximum number of characters of the job's name in the names of its pods."""


def beginning(job: TrainingJob) -> str:
    return f"{job.key.name[:LONGEST_BEGINNING]}-"


NAMES = runtime_id.object_names(beginning)
LABELS = runtime_id.RuntimeLabels(owner=GROUP, job="tf_job_name")
GENERATION = decoding.ListGeneration(
    name=NAME, api_version=NAME, fields=frozenset({decoding.TERMINATION, decoding.SCHEDULER})
)

DIALECT = Dialect(
    name=NAME,
    api_version=NAME,
    matches=is_list_or_v1alpha1,
    decode=decoding.decoder(GENERATION),
    names=NAMES,
    labels=LABELS.of_replica,
    selector=LABELS.of_job,
    worker_selector=LABELS.of_workers,
    discovery_config=wire(NAMES),
    status_fields=phase_status.status_fields,
    invalid_job_fields=phase_status.invalid_job_fields,
    has_conditions=False,
    default_fields=decoding.default_fields,
    persistent_annotations=decoding.persistent_annotations,
    condition_reason=phase_status.reason_of,
    exit_codes=V1ALPHA1,
    rules=rules(NAMES),
    port_name=PORT_NAME,
)
