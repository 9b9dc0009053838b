"""The conversion of MPIJobs between the generations of their API."""

from __future__ import annotations

from functools import partial

from tarragon.frameworks.kubeflow.conversion import convert as kubeflow
from tarragon.frameworks.kubeflow.conversion import diff_view
from tarragon.frameworks.kubeflow.conversion.kind_conversion import KindConversion
from tarragon.frameworks.mpi.conversion.equivalences import with_defaults, with_spelling_of
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tarragon.frameworks.mpi.conversion.losses import TOPICS
from tarragon.frameworks.mpi.conversion.normalized_spec import denormalize, normalize
from tarragon.frameworks.mpi.conversion.spec_writer import write_spec
from tarragon.frameworks.mpi.dialects import DIALECT_BY_NAME
from tarragon.frameworks.mpi.fields import FIRST_CONTAINER

_CONVERSION = KindConversion(
    generations=GENERATIONS,
    dialects=DIALECT_BY_NAME,
    main_container=FIRST_CONTAINER,
    normalize=normalize,
    denormalize=denormalize,
    write_spec=write_spec,
    loss_topics=TOPICS,
    with_defaults=with_defaults,
    with_spelling_of=with_spelling_of,
)

convert = partial(kubeflow.convert, _CONVERSION)
normalize_for_diff = partial(diff_view.normalize_for_diff, _CONVERSION)
