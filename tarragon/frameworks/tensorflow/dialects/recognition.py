"""Recognises the generation of a TFJob by the structure of its spec."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, GROUP
from tarragon.frameworks.plugin import Manifest
from tarragon.frameworks.tensorflow.fields import ELASTIC_FIELDS, LIST_SPELLINGS, NESTED_ONLY, SpecField

LISTS = frozenset(LIST_SPELLINGS)
V1ALPHA1 = f"{GROUP}/v1alpha1"


def spec_fields(manifest: Manifest) -> frozenset[str]:
    """The names of the fields of spec that are not null."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return frozenset()
    return frozenset(name for name, value in spec.items() if isinstance(name, str) and value is not None)


def is_list(manifest: Manifest) -> bool:
    """Whether there is a list of replicas, as before v1alpha2. A map beside it, as `kubectl scale` adds, is ignored."""
    return bool(spec_fields(manifest) & LISTS)


def is_list_or_v1alpha1(manifest: Manifest) -> bool:
    """Whether there is a list of replicas, or the version requires one and there are no replicas at all."""
    fields = spec_fields(manifest)
    return is_list(manifest) or (manifest.get("apiVersion") == V1ALPHA1 and SpecField.REPLICAS not in fields)


def is_elastic(manifest: Manifest) -> bool:
    return not is_list(manifest) and bool(spec_fields(manifest) & ELASTIC_FIELDS)


def is_nested(manifest: Manifest) -> bool:
    """Whether policies are in runPolicy. Also true without any policy, where the generations look the same."""
    fields = spec_fields(manifest)
    return not fields & (LISTS | ELASTIC_FIELDS) and (bool(fields & NESTED_ONLY) or not fields & FLAT_POLICIES)


def is_flat(manifest: Manifest) -> bool:
    """Whether a policy is directly in spec, and there are no fields of later generations."""
    fields = spec_fields(manifest)
    return not fields & (LISTS | ELASTIC_FIELDS | NESTED_ONLY) and bool(fields & FLAT_POLICIES)


def is_map(manifest: Manifest) -> bool:
    """Whether the spec may be of any generation from v1alpha2 to v1beta2."""
    return not spec_fields(manifest) & (LISTS | ELASTIC_FIELDS | NESTED_ONLY)
