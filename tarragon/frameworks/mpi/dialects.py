"""The generations of MPIJob's API, as dialects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from tarragon.frameworks.kubeflow.decoding import Generation
from tarragon.frameworks.kubeflow.fields import WORKER, PolicyField, condition_reason
from tarragon.frameworks.mpi import launcher_status
from tarragon.frameworks.mpi.fields import KIND, LAUNCHER, V1, V1ALPHA1, V1ALPHA2, V2_ONLY, V2BETA1, SpecField
from tarragon.frameworks.mpi.manifest import v1alpha1_decoding
from tarragon.frameworks.mpi.manifest.decoding import MapGeneration, decoder
from tarragon.frameworks.mpi.manifest.recognition import is_before_v2beta1, is_map, is_v1alpha1, warn_about_ssh
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.manifest.rules import V2BETA1_RULES
from tarragon.frameworks.mpi.objects import labels
from tarragon.frameworks.mpi.objects.names import NAMES
from tarragon.frameworks.mpi.objects.pod_wiring import discovery_config
from tarragon.frameworks.mpi.options import Transport
from tarragon.frameworks.plugin import BackoffCount, Dialect, JobService
from tarragon.job import training_operator_status
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, RestartPolicy, TrainingJob


def _job_service(job: TrainingJob) -> JobService:
    """The Service in which all pods have a name of their own. Intel MPI and MPICH connect back to the launcher, too."""
    return JobService(name=job.key.name, selector=labels.V2BETA1.of_job(job))


_dialect = partial(Dialect, names=NAMES, discovery_config=discovery_config, exit_codes=SINCE_TRAINING_OPERATOR_1_5)

_V1ALPHA1 = _dialect(
    name=V1ALPHA1,
    api_version=V1ALPHA1,
    matches=is_v1alpha1,
    decode=v1alpha1_decoding.decode,
    labels=labels.UP_TO_V1ALPHA2.of_replica,
    selector=labels.UP_TO_V1ALPHA2.of_job,
    worker_selector=labels.UP_TO_V1ALPHA2.of_workers,
    status_fields=launcher_status.status_fields,
    invalid_job_fields=launcher_status.invalid_job_fields,
    has_conditions=False,
    used_batch_jobs=True,
    configured_fields=v1alpha1_decoding.configured_fields,
    condition_reason=condition_reason(KIND, invalid="ValidationError"),
    backoff_count=BackoffCount.BATCH_JOB,
)
_V1ALPHA2 = _dialect(
    name=V1ALPHA2,
    api_version=V1ALPHA2,
    matches=is_before_v2beta1,
    decode=decoder(
        MapGeneration(
            generation=Generation(
                name=V1ALPHA2,
                api_version=V1ALPHA2,
                clean_pods=CleanPodPolicy.NONE,
                restart_policies={WORKER: RestartPolicy.ALWAYS},
            ),
            transport=Transport.EXEC,
            engine=LauncherEngine.BATCH_JOB,
            fields=frozenset(
                {
                    SpecField.MAIN_CONTAINER,
                    PolicyField.CLEAN_POD_POLICY,
                    PolicyField.BACKOFF_LIMIT,
                    PolicyField.ACTIVE_DEADLINE,
                }
            ),
        )
    ),
    labels=labels.UP_TO_V1ALPHA2.of_replica,
    selector=labels.UP_TO_V1ALPHA2.of_job,
    worker_selector=labels.UP_TO_V1ALPHA2.of_workers,
    status_fields=training_operator_status.status_fields,
    used_batch_jobs=True,
    condition_reason=condition_reason(KIND, invalid="ValidationError"),
    backoff_count=BackoffCount.BATCH_JOB,
)
_V1 = _dialect(
    name=V1,
    api_version=V1,
    matches=is_before_v2beta1,
    decode=decoder(
        MapGeneration(
            generation=Generation(name=V1, api_version=V1, clean_pods=CleanPodPolicy.NONE),
            transport=Transport.EXEC,
            engine=LauncherEngine.POD,
            fields=frozenset({SpecField.MAIN_CONTAINER, PolicyField.CLEAN_POD_POLICY}),
            gpu_launcher_works=True,
        )
    ),
    labels=labels.V1.of_replica,
    selector=labels.V1.of_job,
    worker_selector=labels.V1.of_workers,
    status_fields=training_operator_status.status_fields,
    condition_reason=condition_reason(KIND, invalid="MPIJobFailedValidation"),
)
_V2BETA1 = _dialect(
    name=V2BETA1,
    api_version=V2BETA1,
    matches=is_map,
    recognition_warnings=warn_about_ssh,
    decode=decoder(
        MapGeneration(
            generation=Generation(
                name=V2BETA1,
                api_version=V2BETA1,
                clean_pods=CleanPodPolicy.NONE,
                restart_policies={LAUNCHER: RestartPolicy.ON_FAILURE},
            ),
            transport=Transport.SSH,
            engine=LauncherEngine.BATCH_JOB,
            fields=V2_ONLY,
            restart_policies=frozenset({RestartPolicy.NEVER, RestartPolicy.ON_FAILURE}),
        )
    ),
    labels=labels.V2BETA1.of_replica,
    selector=labels.V2BETA1.of_job,
    worker_selector=labels.V2BETA1.of_workers,
    job_service=_job_service,
    status_fields=training_operator_status.status_fields,
    used_batch_jobs=True,
    condition_reason=condition_reason(KIND, invalid="ValidationError"),
    backoff_count=BackoffCount.BATCH_JOB,
    rules=V2BETA1_RULES,
)

DIALECTS = (_V1ALPHA1, _V1ALPHA2, _V1, _V2BETA1)
"""The last one is the fallback for manifests that could be of several generations."""

DIALECT_BY_NAME: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in DIALECTS})
