"""The Framework value of MPIJob: all that the rest of the program knows about MPI."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import SUSPEND_PATH
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS, NEWEST
from tarragon.frameworks.mpi.dialects import DIALECTS
from tarragon.frameworks.mpi.ended_workers import workers_keep_running
from tarragon.frameworks.mpi.fields import (
    FIRST_CONTAINER,
    KIND,
    MAX_REPLICAS,
    MIN_REPLICAS,
    ROLES,
    START_ORDER,
    SpecField,
)
from tarragon.frameworks.mpi.image_software import IMAGE_SOFTWARE
from tarragon.frameworks.mpi.log_causes import LOG_CAUSES
from tarragon.frameworks.mpi.manifest.crd import MPIJOBS, SHORT_NAMES, crd
from tarragon.frameworks.mpi.manifest.operator_options import OPERATOR_OPTIONS
from tarragon.frameworks.mpi.manifest.rules import RULES, WARNING_RULES, no_services
from tarragon.frameworks.mpi.manifest.v1alpha1_decoding import without_gpu_count, without_scaled_size
from tarragon.frameworks.mpi.objects.owned_objects import KEPT_CURRENT, PERMISSIONS, owned_objects
from tarragon.frameworks.mpi.options import ranks_per_replica
from tarragon.frameworks.mpi.script_job import SCRIPTS
from tarragon.frameworks.mpi.verdict import evaluate
from tarragon.frameworks.mpi.worker_loss import review_worker_loss
from tarragon.frameworks.plugin import (
    ApiConversion,
    ConvertedManifest,
    EditableFields,
    Framework,
    Manifest,
    OriginalMetrics,
)


def _convert(found: Manifest, source: str, target: str) -> ConvertedManifest:
    from tarragon.frameworks.mpi.conversion.convert import convert  # noqa: PLC0415 - few commands convert

    return convert(found, source, target)


def _normalize_for_diff(live: Manifest, new: Manifest, generation: str) -> tuple[Manifest, Manifest]:
    from tarragon.frameworks.mpi.conversion.convert import normalize_for_diff  # noqa: PLC0415 - as above

    return normalize_for_diff(live, new, generation)


MPI = Framework(
    kind=KIND,
    resource=MPIJOBS,
    short_names=SHORT_NAMES,
    dialects=DIALECTS,
    rules=RULES,
    warning_rules=WARNING_RULES,
    main_container=FIRST_CONTAINER,
    port_name="",
    service_size=no_services,
    owned_objects=owned_objects,
    kept_current=KEPT_CURRENT,
    required_permissions=PERMISSIONS,
    operator_options=OPERATOR_OPTIONS,
    evaluate=evaluate,
    review_states=review_worker_loss,
    roles=ROLES,
    start_order=START_ORDER,
    crd=crd,
    is_crd_optional=True,
    editable_fields=EditableFields(
        suspend=SUSPEND_PATH,
        min_replicas=f"spec.{SpecField.ELASTIC_POLICY}.{MIN_REPLICAS}",
        max_replicas=f"spec.{SpecField.ELASTIC_POLICY}.{MAX_REPLICAS}",
        without_scaled_size=without_scaled_size,
        without_gpu_count=without_gpu_count,
    ),
    conversion=ApiConversion(
        generations=tuple(GENERATIONS), newest=NEWEST, convert=_convert, normalize_for_diff=_normalize_for_diff
    ),
    other_operators=frozenset({"training-operator", "mpi-operator"}),
    original_metrics=OriginalMetrics(
        prefix="mpi_operator", counters={"created": "created", "succeeded": "successful", "failed": "failed"}
    ),
    likely_mistakes=workers_keep_running,
    log_causes=LOG_CAUSES,
    scripts=SCRIPTS,
    programs_per_replica=ranks_per_replica,
    image_software=IMAGE_SOFTWARE,
)
