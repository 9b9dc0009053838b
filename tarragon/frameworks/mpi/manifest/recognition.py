"""Recognises the generation of an MPIJob by the structure of its spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.base.errors import Problem
from tarragon.frameworks.mpi.fields import V1ALPHA1, V2_ONLY, V2BETA1, SpecField, V1Alpha1Field
from tarragon.frameworks.plugin import Manifest
from tarragon.kube.meta import Json

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


def warn_about_ssh(manifest: Manifest, written: Json) -> Iterator[Problem]:
    """Warn if a field makes a job of another API version one of v2beta1, which reaches its workers differently."""
    if written == V2BETA1:
        return
    names = sorted(_fields(manifest) & V2_ONLY) or [SpecField.REPLICAS.value]
    fields = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    yield Problem(
        "apiVersion",
        f"{written} does not have {fields}, so the job is run as {V2BETA1}: mpirun reaches the workers by SSH and not "
        "by exec, and the image needs sshd",
        f"write {V2BETA1}, or remove {fields}",
    )
