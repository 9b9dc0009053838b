"""The generations before kubeflow.org/v1. They are recognised, so that nobody is told that such a job is nonsense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Dialect, Manifest, Reading
from tarragon.frameworks.tensorflow import v1
from tarragon.frameworks.tensorflow.recognition import is_list

_OTHER_FIELDS = "write it as kubeflow.org/v1: spec.tfReplicaSpecs, a map from type to replicas, restartPolicy, template"


def not_read_yet(api_version: str, of: str, recognise: Callable[[Manifest], bool], remedy: str) -> Dialect:
    """A generation that we know by sight. Whoever makes it readable replaces its line below by a file of its own."""
    problem = Problem(
        "apiVersion",
        f"this is a job of {api_version}, from {of}; this version of Tarragon reads kubeflow.org/v1",
        remedy,
    )
    return replace(
        v1.DIALECT,
        name=api_version,
        api_version=api_version,
        recognise=recognise,
        read=lambda _: Reading(job=None, problems=(problem,)),
    )


DIALECTS = (not_read_yet("mlkube.io/v1beta1", "the first TfJob operator of 2017", is_list, _OTHER_FIELDS),)
