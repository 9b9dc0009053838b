"""The fields and defaults of each generation of TFJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tarragon.frameworks.kubeflow.conversion.kind_conversion import ApiGeneration
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, GROUP, PolicyField
from tarragon.frameworks.tensorflow.fields import ELASTIC_FIELDS, KIND, SpecField
from tarragon.job.model import CleanPodPolicy

MLKUBE = "mlkube.io"


class SpecLayout(Enum):
    """Where a spec has its replicas and policies."""

    LIST = "a list of replicas; policies, an extension of Tarragon there, in runPolicy"
    FLAT = "a map of replicas, policies beside it; all others in runPolicy"
    NESTED = "a map of replicas, policies in runPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TFJobGeneration(ApiGeneration):
    """A generation of TFJob. `fields` are those of spec other than replicas and policies."""

    kind: str = KIND
    shape: SpecLayout
    fields: frozenset[str] = frozenset()
    tolerated_fields: frozenset[str] = frozenset()
    """Fields that would make a manifest one of another generation, but that have an effect in a job that was recognised
    before they were added."""

    @property
    def is_list(self) -> bool:
        return self.shape is SpecLayout.LIST

    @property
    def effective_fields(self) -> frozenset[str]:
        """All fields that have an effect."""
        return self.fields | self.tolerated_fields


_LIST_FIELDS = frozenset({"RuntimeId", "tfImage", "tensorboard"})
_LATE = frozenset({SpecField.SUCCESS_POLICY, SpecField.DYNAMIC_WORKER})
_EARLY = frozenset({PolicyField.CLEAN_POD_POLICY, PolicyField.TTL})

_ALL = (
    TFJobGeneration(
        name=f"{MLKUBE}/v1beta1",
        api_version=f"{MLKUBE}/v1beta1",
        kind="TfJob",
        shape=SpecLayout.LIST,
        clean_pods=CleanPodPolicy.NONE,
        policies=frozenset(PolicyField),
        fields=_LIST_FIELDS,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1alpha1",
        api_version=f"{GROUP}/v1alpha1",
        shape=SpecLayout.LIST,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=frozenset(PolicyField),
        fields=_LIST_FIELDS | {"terminationPolicy", "schedulerName"},
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1alpha2",
        api_version=f"{GROUP}/v1alpha2",
        shape=SpecLayout.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=_EARLY,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1beta1",
        api_version=f"{GROUP}/v1beta1",
        shape=SpecLayout.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=_EARLY,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1beta2",
        api_version=f"{GROUP}/v1beta2",
        shape=SpecLayout.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=FLAT_POLICIES,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1-flat",
        api_version=f"{GROUP}/v1",
        shape=SpecLayout.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=FLAT_POLICIES,
        tolerated_fields=_LATE | ELASTIC_FIELDS,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1-dragon",
        api_version=f"{GROUP}/v1",
        shape=SpecLayout.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=frozenset(PolicyField),
        fields=ELASTIC_FIELDS | _LATE,
    ),
    TFJobGeneration(
        name=f"{GROUP}/v1",
        api_version=f"{GROUP}/v1",
        shape=SpecLayout.NESTED,
        clean_pods=CleanPodPolicy.NONE,
        policies=frozenset(PolicyField),
        fields=_LATE,
        tolerated_fields=ELASTIC_FIELDS,
    ),
)

GENERATIONS: Mapping[str, TFJobGeneration] = MappingProxyType({generation.name: generation for generation in _ALL})
"""The generations by name, oldest first."""

FIELDS: frozenset[str] = frozenset().union(*(generation.fields for generation in _ALL))
"""The fields of all generations. Any other field is unknown and is kept unchanged."""
