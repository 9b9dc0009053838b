"""kubeflow.org/v1beta2 of tf-operator 0.4 and 0.5. Where these differ, it follows 0.5.3, the last one to serve it.

As in the flat v1, which 0.5.3 also served, labels have dashes, and there are activeDeadlineSeconds and backoffLimit.
Unlike there, a job of a single replica gets TF_CONFIG.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES
from tarragon.frameworks.tensorflow.dialects import v1_flat
from tarragon.frameworks.tensorflow.dialects.recognition import is_map
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.frameworks.tensorflow.tf_config import EVERY_CONTAINER, TFConfigOptions, discovery_config
from tarragon.job.model import CleanPodPolicy

NAME = "kubeflow.org/v1beta2"

DIALECT = replace(
    v1_flat.DIALECT,
    name=NAME,
    api_version=NAME,
    matches=is_map,
    decode=decoder(
        GenerationFields(
            generation=NAME,
            clean_pods=CleanPodPolicy.RUNNING,
            api_version=NAME,
            fields=FLAT_POLICIES | {SpecField.REPLICAS},
        )
    ),
    discovery_config=discovery_config(
        TFConfigOptions(container=EVERY_CONTAINER, lists_evaluator=False, includes_single_replica=True)
    ),
)
