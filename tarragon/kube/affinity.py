"""Partial types of affinity, anti-affinity and topology spread constraints in a pod's spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from tarragon.kube.meta import Struct
from tarragon.kube.selectors import Predicate, from_match_labels

S = TypeVar("S", bound=Struct)

_VALUES = frozenset({"In", "NotIn"})
_OPERATORS = _VALUES | {"Exists", "DoesNotExist"}


class LabelRequirement(Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Struct, frozen=True):
    """A metav1.LabelSelector. An empty one selects everything, a missing one nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelRequirement] = []

    def predicate(self) -> Predicate:
        return from_match_labels(msgspec.to_builtins(self))

    @property
    def choices(self) -> list[list[tuple[str, str]]]:
        """For each requirement with explicit values, the labels of which every selected object has one; for indexes."""
        exact = [[(key, value)] for key, value in self.match_labels.items()]
        return exact + [
            [(one.key, value) for value in one.values] for one in self.match_expressions if one.operator == "In"
        ]


class PodAffinityTerm(Struct, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Struct, frozen=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Struct, frozen=True):
    """A podAffinity or podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []

    @property
    def required(self) -> list[PodAffinityTerm]:
        return self.required_during_scheduling_ignored_during_execution

    @property
    def preferred(self) -> list[WeightedPodAffinityTerm]:
        return self.preferred_during_scheduling_ignored_during_execution


class PreferredNodes(Struct, frozen=True):
    weight: int
    preference: dict[str, Any]


class NodeAffinity(Struct, frozen=True):
    """The preferences of a nodeAffinity. Its requirements are decoded by the node predicates."""

    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] = []

    @property
    def preferred(self) -> list[PreferredNodes]:
        return self.preferred_during_scheduling_ignored_during_execution


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class SpreadConstraint(Struct, frozen=True):
    """One of the topologySpreadConstraints."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []

    @property
    def is_required(self) -> bool:
        return self.when_unsatisfiable == "DoNotSchedule"


_NONE = Affinity()


def affinity(found: object) -> Affinity:
    """Decode an affinity. An invalid one counts as none, because no API server accepts such a pod."""
    if not isinstance(found, Mapping):
        return _NONE
    return _read(found, Affinity) or _NONE


def spread_constraints(found: object) -> list[SpreadConstraint]:
    several = found if isinstance(found, list | tuple) else []
    return [read for one in several if (read := _read(one, SpreadConstraint)) is not None]


def _read(found: object, model: type[S]) -> S | None:
    try:
        read = msgspec.convert(found, model)
    except msgspec.ValidationError:
        return None
    return read if all(one.operator in _OPERATORS for one in _requirements(read)) else None


def _requirements(found: object) -> Iterator[LabelRequirement]:
    """The requirements of all selectors in a decoded value."""
    if isinstance(found, LabelRequirement):
        yield found
    elif isinstance(found, Struct):
        for name in found.__struct_fields__:
            yield from _requirements(getattr(found, name))
    elif isinstance(found, list):
        for each in found:
            yield from _requirements(each)
