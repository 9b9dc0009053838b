"""kubeflow.org/v1 of DRAGON: the flat v1, plus max-instances and min-instances for its workers."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.tensorflow.dialects import v1_flat
from tarragon.frameworks.tensorflow.dialects.recognition import is_elastic
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.job.model import CleanPodPolicy

NAME = "kubeflow.org/v1-dragon"

DIALECT = replace(
    v1_flat.DIALECT,
    name=NAME,
    matches=is_elastic,
    decode=decoder(GenerationFields(generation=NAME, clean_pods=CleanPodPolicy.RUNNING)),
)
