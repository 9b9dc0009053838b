"""The fields and defaults of each generation of TFJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tarragon.frameworks.tensorflow.fields import ELASTIC, FLAT_POLICIES, GROUP, KIND, Policy, Spec
from tarragon.job.model import CleanPodPolicy

MLKUBE = "mlkube.io"


class Shape(Enum):
    """Where a spec has its replicas and policies."""

    LIST = "a list of replicas; policies, an extension of Tarragon there, in runPolicy"
    FLAT = "a map of replicas, policies beside it; all others in runPolicy"
    NESTED = "a map of replicas, policies in runPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation by the name of its dialect. `fields` are those of spec other than replicas and policies."""

    name: str
    api_version: str
    shape: Shape
    clean_pods: CleanPodPolicy
    """The default of cleanPodPolicy."""
    policies: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    read_besides: frozenset[str] = frozenset()
    """Fields that would make a manifest one of another generation, but that have an effect in a job that was recognised
    before they were added."""
    kind: str = KIND

    @property
    def is_list(self) -> bool:
        return self.shape is Shape.LIST

    @property
    def counting(self) -> frozenset[str]:
        """All fields that have an effect."""
        return self.fields | self.read_besides

    @property
    def extra(self) -> str:
        """The annotation with which manifests of other generations keep the fields that only this one has."""
        group, _, version = self.name.partition("/")
        return f"tarragon.dev/{version if group == GROUP else group.partition('.')[0]}-extra"


_LIST_FIELDS = frozenset({"RuntimeId", "tfImage", "tensorboard"})
_LATE = frozenset({Spec.SUCCESS_POLICY, Spec.DYNAMIC_WORKER})
_EARLY = frozenset({Policy.CLEAN_POD_POLICY, Policy.TTL})

_ALL = (
    Generation(
        name=f"{MLKUBE}/v1beta1",
        api_version=f"{MLKUBE}/v1beta1",
        kind="TfJob",
        shape=Shape.LIST,
        clean_pods=CleanPodPolicy.NONE,
        policies=frozenset(Policy),
        fields=_LIST_FIELDS,
    ),
    Generation(
        name=f"{GROUP}/v1alpha1",
        api_version=f"{GROUP}/v1alpha1",
        shape=Shape.LIST,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=frozenset(Policy),
        fields=_LIST_FIELDS | {"terminationPolicy", "schedulerName"},
    ),
    Generation(
        name=f"{GROUP}/v1alpha2",
        api_version=f"{GROUP}/v1alpha2",
        shape=Shape.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=_EARLY,
    ),
    Generation(
        name=f"{GROUP}/v1beta1",
        api_version=f"{GROUP}/v1beta1",
        shape=Shape.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=_EARLY,
    ),
    Generation(
        name=f"{GROUP}/v1beta2",
        api_version=f"{GROUP}/v1beta2",
        shape=Shape.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=FLAT_POLICIES,
    ),
    Generation(
        name=f"{GROUP}/v1-flat",
        api_version=f"{GROUP}/v1",
        shape=Shape.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=FLAT_POLICIES,
        read_besides=_LATE | ELASTIC,
    ),
    Generation(
        name=f"{GROUP}/v1-dragon",
        api_version=f"{GROUP}/v1",
        shape=Shape.FLAT,
        clean_pods=CleanPodPolicy.RUNNING,
        policies=frozenset(Policy),
        fields=ELASTIC | _LATE,
    ),
    Generation(
        name=f"{GROUP}/v1",
        api_version=f"{GROUP}/v1",
        shape=Shape.NESTED,
        clean_pods=CleanPodPolicy.NONE,
        policies=frozenset(Policy),
        fields=_LATE,
        read_besides=ELASTIC,
    ),
)

GENERATIONS: Mapping[str, Generation] = MappingProxyType({generation.name: generation for generation in _ALL})
"""The generations by name, oldest first."""

FIELDS: frozenset[str] = frozenset().union(*(generation.fields for generation in _ALL))
"""The fields of all generations. Any other field is unknown and is kept unchanged."""
