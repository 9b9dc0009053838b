"""kubeflow.org/v1beta2 of tf-operator 0.4 and 0.5. Where these differ, it follows 0.5.3, the last one to serve it.

As in the flat v1, which 0.5.3 also served, labels have dashes, and there are activeDeadlineSeconds and backoffLimit.
Unlike there, a job of a single replica gets TF_CONFIG.
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
