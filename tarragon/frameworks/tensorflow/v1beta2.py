"""kubeflow.org/v1beta2 as tf-operator 0.4 and 0.5 had it; where they differ as 0.5.3 did, the last one to serve it.

So its labels have dashes, and there are activeDeadlineSeconds and backoffLimit: all as in the flat v1, which 0.5.3
served beside it. But a job of a single replica is told about itself.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.tensorflow import v1_flat
from tarragon.frameworks.tensorflow.fields import FLAT_POLICIES, Spec
from tarragon.frameworks.tensorflow.recognition import is_map
from tarragon.frameworks.tensorflow.shape import Defaults, reader
from tarragon.frameworks.tensorflow.wiring import EVERY_CONTAINER, Habits, wire
from tarragon.job.model import CleanPodPolicy

NAME = "kubeflow.org/v1beta2"

DIALECT = replace(
    v1_flat.DIALECT,
    name=NAME,
    api_version=NAME,
    recognise=is_map,
    read=reader(
        Defaults(
            generation=NAME,
            clean_pods=CleanPodPolicy.RUNNING,
            api_version=NAME,
            fields=FLAT_POLICIES | {Spec.REPLICAS},
        )
    ),
    wire=wire(Habits(container=EVERY_CONTAINER, lists_evaluator=False, tells_one=True)),
)
