"""The conversion of TFJobs and TfJobs between the generations of their APIs."""

from __future__ import annotations

from functools import partial

from tarragon.frameworks.kubeflow.conversion import convert as kubeflow
from tarragon.frameworks.kubeflow.conversion import diff_view
from tarragon.frameworks.kubeflow.conversion.kind_conversion import KindConversion
from tarragon.frameworks.tensorflow.conversion.equivalences import with_defaults, with_spelling_of
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.conversion.losses import TOPICS
from tarragon.frameworks.tensorflow.conversion.metadata import manifest
from tarragon.frameworks.tensorflow.conversion.normalized_spec import FIELD_ANNOTATIONS, denormalize, normalize
from tarragon.frameworks.tensorflow.conversion.spec_writer import write_spec
from tarragon.frameworks.tensorflow.dialects.all_dialects import DIALECT_BY_NAME
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER

_CONVERSION = KindConversion(
    generations=GENERATIONS,
    dialects=DIALECT_BY_NAME,
    main_container=MAIN_CONTAINER,
    normalize=normalize,
    denormalize=denormalize,
    write_spec=write_spec,
    loss_topics=TOPICS,
    with_defaults=with_defaults,
    with_spelling_of=with_spelling_of,
    field_annotations=FIELD_ANNOTATIONS,
    as_manifest=manifest,
)

convert = partial(kubeflow.convert, _CONVERSION)
normalize_for_diff = partial(diff_view.normalize_for_diff, _CONVERSION)
