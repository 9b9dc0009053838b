"""Recognises the generation of an MPIJob by the structure of its spec."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.mpi.fields import V2_ONLY, SpecField, V1Alpha1Field
from tarragon.frameworks.mpi.manifest.v1alpha1_decoding import NAME as V1ALPHA1
from tarragon.frameworks.plugin import Manifest

_SHORT = frozenset(name.lower() for name in V1Alpha1Field if name is not V1Alpha1Field.SLOTS)


def _fields(manifest: Manifest) -> frozenset[str]:
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return frozenset()
    return frozenset(name for name, value in spec.items() if isinstance(name, str) and value is not None)


def is_v1alpha1(manifest: Manifest) -> bool:
    """Whether there is one template for all pods. Replica specs beside it, as `kubectl scale` adds, are ignored."""
    fields = {name.lower() for name in _fields(manifest)}
    if SpecField.REPLICAS.lower() in fields:
        return V1Alpha1Field.TEMPLATE in fields
    return manifest.get("apiVersion") == V1ALPHA1 or bool(fields & _SHORT)


def is_before_v2beta1(manifest: Manifest) -> bool:
    """Whether the spec may be of v1alpha2 or v1, which look the same."""
    return not is_v1alpha1(manifest) and not _fields(manifest) & V2_ONLY


def is_map(manifest: Manifest) -> bool:
    return not is_v1alpha1(manifest)
