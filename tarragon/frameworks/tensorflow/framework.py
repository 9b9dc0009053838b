"""The Framework values of TFJob and its predecessor TfJob: all that the rest of the program knows about TensorFlow."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.image_software import python_library
from tarragon.frameworks.kubeflow.fields import SUSPEND_PATH
from tarragon.frameworks.kubeflow.verdict import evaluate
from tarragon.frameworks.plugin import (
    ApiConversion,
    ConvertedManifest,
    EditableFields,
    Framework,
    Manifest,
    OriginalMetrics,
)
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.conversion.metadata import without_derived_id
from tarragon.frameworks.tensorflow.crd import MLKUBE_TFJOBS, TFJOBS, crd, mlkube_crd
from tarragon.frameworks.tensorflow.dialects import mlkube, v1
from tarragon.frameworks.tensorflow.dialects.all_dialects import TFJOB_DIALECTS
from tarragon.frameworks.tensorflow.fields import KIND, MAIN_CONTAINER, PORT_NAME, SpecField
from tarragon.frameworks.tensorflow.keras_bars import sums_metrics
from tarragon.frameworks.tensorflow.legacy_keras import script_needs, script_needs_of_image
from tarragon.frameworks.tensorflow.log_causes import LOG_CAUSES
from tarragon.frameworks.tensorflow.parameter_servers import missing_replicas
from tarragon.frameworks.tensorflow.replica_list import default_server
from tarragon.frameworks.tensorflow.replica_list.replicas import without_scaled_size
from tarragon.frameworks.tensorflow.replica_types import ROLES, START_ORDER
from tarragon.frameworks.tensorflow.rules import RULES, WARNING_RULES
from tarragon.frameworks.tensorflow.script_job import SCRIPTS
from tarragon.frameworks.tensorflow.tf_config import cluster_size


def _convert(found: Manifest, source: str, target: str) -> ConvertedManifest:
    from tarragon.frameworks.tensorflow.conversion.convert import convert  # noqa: PLC0415 - few commands convert

    return convert(found, source, target)


def _normalize_for_diff(live: Manifest, new: Manifest, generation: str) -> tuple[Manifest, Manifest]:
    from tarragon.frameworks.tensorflow.conversion.convert import normalize_for_diff  # noqa: PLC0415 - as above

    return normalize_for_diff(live, new, generation)


TENSORFLOW = Framework(
    kind=KIND,
    resource=TFJOBS,
    dialects=TFJOB_DIALECTS,
    rules=RULES,
    warning_rules=WARNING_RULES,
    main_container=MAIN_CONTAINER,
    port_name=PORT_NAME,
    service_size=cluster_size,
    owned_objects=default_server.owned_objects,
    evaluate=evaluate,
    roles=ROLES,
    start_order=START_ORDER,
    crd=crd,
    editable_fields=EditableFields(
        suspend=SUSPEND_PATH,
        min_replicas=f"spec.{SpecField.MIN_INSTANCES}",
        max_replicas=f"spec.{SpecField.MAX_INSTANCES}",
        without_scaled_size=without_scaled_size,
        without_derived_fields=without_derived_id,
    ),
    conversion=ApiConversion(
        generations=tuple(GENERATIONS), newest=v1.NAME, convert=_convert, normalize_for_diff=_normalize_for_diff
    ),
    other_operators=frozenset({"training-operator", "tf-operator"}),
    original_metrics=OriginalMetrics(
        prefix="tf_operator",
        counters={
            "created": "created",
            "deleted": "deleted",
            "succeeded": "successful",
            "failed": "failed",
            "restarted": "restarted",
        },
    ),
    scripts=SCRIPTS,
    image_software=(python_library("TensorFlow", "tensorflow", ("tensorflow", "tensorflow-cpu")),),
    log_causes=LOG_CAUSES,
    script_needs=script_needs,
    bars_sum_metrics=sums_metrics,
    script_needs_of_image=script_needs_of_image,
    missing_replicas=missing_replicas,
)

MLKUBE = replace(
    TENSORFLOW,
    kind=mlkube.KIND,
    resource=MLKUBE_TFJOBS,
    dialects=(mlkube.DIALECT,),
    crd=mlkube_crd,
    is_crd_optional=True,
    original_metrics=None,
    other_operators=frozenset(),
    scripts=None,
)
"""The TfJob of 2017, a different kind in a different group, with its own CustomResourceDefinition."""
