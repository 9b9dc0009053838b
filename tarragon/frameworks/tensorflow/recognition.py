"""What the shape of a TFJob tells about its generation."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.plugin import Manifest
from tarragon.frameworks.tensorflow.fields import ELASTIC, FLAT_POLICIES, GROUP, LIST_SPELLINGS, NESTED_ONLY, Spec

LISTS = frozenset(LIST_SPELLINGS)
V1ALPHA1 = f"{GROUP}/v1alpha1"


def spec_fields(manifest: Manifest) -> frozenset[str]:
    """The fields of spec that are there and not null."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return frozenset()
    return frozenset(name for name, value in spec.items() if isinstance(name, str) and value is not None)


def is_list(manifest: Manifest) -> bool:
    """A list of replicas, as before v1alpha2. It decides, whatever stands beside it: `kubectl scale` adds a map."""
    return bool(spec_fields(manifest) & LISTS)


def is_meant_as_list(manifest: Manifest) -> bool:
    """Also one that says so by its version, and has no replicas yet: what it lacks is the list."""
    fields = spec_fields(manifest)
    return is_list(manifest) or (manifest.get("apiVersion") == V1ALPHA1 and Spec.REPLICAS not in fields)


def is_elastic(manifest: Manifest) -> bool:
    return not is_list(manifest) and bool(spec_fields(manifest) & ELASTIC)


def is_nested(manifest: Manifest) -> bool:
    """Also a job without any policy: there the generations do not differ in shape."""
    fields = spec_fields(manifest)
    return not fields & (LISTS | ELASTIC) and (bool(fields & NESTED_ONLY) or not fields & FLAT_POLICIES)


def is_flat(manifest: Manifest) -> bool:
    """Some policy in spec itself, and none of what came later."""
    fields = spec_fields(manifest)
    return not fields & (LISTS | ELASTIC | NESTED_ONLY) and bool(fields & FLAT_POLICIES)


def is_map(manifest: Manifest) -> bool:
    """What every generation from v1alpha2 to v1beta2 may look like."""
    return not spec_fields(manifest) & (LISTS | ELASTIC | NESTED_ONLY)
