"""The generations of TFJob's API and of its predecessor TfJob, as dialects."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.tensorflow.dialects import mlkube, v1, v1_dragon, v1_flat, v1alpha1, v1alpha2, v1beta1, v1beta2

TFJOB_DIALECTS = (
    v1_dragon.DIALECT,
    v1_flat.DIALECT,
    v1beta2.DIALECT,
    v1beta1.DIALECT,
    v1alpha2.DIALECT,
    v1alpha1.DIALECT,
    v1.DIALECT,
)
"""The last one is the fallback for manifests that could be of several generations."""

DIALECT_BY_NAME: Mapping[str, Dialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (*TFJOB_DIALECTS, mlkube.DIALECT)}
)
