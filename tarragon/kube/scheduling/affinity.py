"""Partial types of affinity, anti-affinity and topology spread constraints in a pod's spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from tarragon.kube.meta import PartialObject
from tarragon.kube.selectors import Predicate, label_selector_as_predicate

S = TypeVar("S", bound=PartialObject)

_VALUES = frozenset({"In", "NotIn"})
_OPERATORS = _VALUES | {"Exists", "DoesNotExist"}


class LabelSelectorRequirement(PartialObject, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(PartialObject, frozen=True):
    """A metav1.LabelSelector. An empty one selects everything, a missing one nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []

    def predicate(self) -> Predicate:
        return label_selector_as_predicate(msgspec.to_builtins(self))

    @property
    def exact_label_sets(self) -> list[list[tuple[str, str]]]:
        """For each requirement with explicit values, the labels of which every selected object has one; for indexes."""
        exact = [[(key, value)] for key, value in self.match_labels.items()]
        return exact + [
            [(one.key, value) for value in one.values] for one in self.match_expressions if one.operator == "In"
        ]


class PodAffinityTerm(PartialObject, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(PartialObject, frozen=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(PartialObject, frozen=True):
    """A podAffinity or podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []

    @property
    def required(self) -> list[PodAffinityTerm]:
        return self.required_during_scheduling_ignored_during_execution

    @property
    def preferred(self) -> list[WeightedPodAffinityTerm]:
        return self.preferred_during_scheduling_ignored_during_execution


class PreferredSchedulingTerm(PartialObject, frozen=True):
    weight: int
    preference: dict[str, Any]


class NodeAffinity(PartialObject, frozen=True):
    """The preferences of a nodeAffinity. Its requirements are decoded by the node predicates."""

    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []

    @property
    def preferred(self) -> list[PreferredSchedulingTerm]:
        return self.preferred_during_scheduling_ignored_during_execution


class Affinity(PartialObject, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpreadConstraint(PartialObject, frozen=True):
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


def decode_affinity(found: object) -> Affinity:
    """Decode an affinity. An invalid one counts as none, because no API server accepts such a pod."""
    if not isinstance(found, Mapping):
        return _NONE
    return _read(found, Affinity) or _NONE


def decode_spread_constraints(found: object) -> list[TopologySpreadConstraint]:
    several = found if isinstance(found, list | tuple) else []
    return [read for one in several if (read := _read(one, TopologySpreadConstraint)) is not None]


def _read(found: object, model: type[S]) -> S | None:
    try:
        read = msgspec.convert(found, model)
    except msgspec.ValidationError:
        return None
    return read if all(one.operator in _OPERATORS for one in _requirements(read)) else None


def _requirements(found: object) -> Iterator[LabelSelectorRequirement]:
    """The requirements of all selectors in a decoded value."""
    if isinstance(found, LabelSelectorRequirement):
        yield found
    elif isinstance(found, PartialObject):
        for name in found.__struct_fields__:
            yield from _requirements(getattr(found, name))
    elif isinstance(found, list):
        for each in found:
            yield from _requirements(each)
