"""What each generation of TFJob has a field for, and what it means where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tarragon.frameworks.tensorflow.fields import ELASTIC, FLAT_POLICIES, GROUP, KIND, Policy, Spec
from tarragon.job.model import CleanPodPolicy

MLKUBE = "mlkube.io"


class Shape(Enum):
    """Where replicas and policies stand."""

    LIST = "a list of replicas; policies, which only we know there, in runPolicy"
    FLAT = "a map of replicas, policies beside it; in runPolicy what has no place there"
    NESTED = "a map of replicas, policies in runPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """`name` is that of its dialect; `fields` are those of spec beside replicas and policies."""

    name: str
    api_version: str
    shape: Shape
    clean_pods: CleanPodPolicy
    """What it means where nothing is said."""
    policies: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    read_besides: frozenset[str] = frozenset()
    """Fields that no manifest of it has, as they would make it one of another generation; but they count in a job that
    was recognised before they were added."""
    kind: str = KIND

    @property
    def is_list(self) -> bool:
        return self.shape is Shape.LIST

    @property
    def counting(self) -> frozenset[str]:
        """The fields that have an effect where they are found."""
        return self.fields | self.read_besides

    @property
    def extra(self) -> str:
        """The annotation in which the manifest of another generation keeps what only this one has a place for."""
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
"""By name, the oldest first."""

FIELDS: frozenset[str] = frozenset().union(*(generation.fields for generation in _ALL))
"""Of all of them: a field that is none of these is nobody's, and travels as it is."""
