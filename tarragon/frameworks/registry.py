"""The registry of frameworks. It finds the framework of a manifest and reports misspelled kinds and versions."""

from __future__ import annotations

from tarragon.base.errors import Problem
from tarragon.frameworks.jax.framework import JAX
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.api_version import nearest_version
from tarragon.kube.field_reader import describe_value, nearest_name
from tarragon.kube.meta import Json

FRAMEWORKS: tuple[Framework, ...] = (TENSORFLOW, MLKUBE, MPI, JAX, SHAREPOD)
"""If two kinds have the same name, a name without a group means the first one."""

DEFAULT_FRAMEWORK = FRAMEWORKS[0]
"""Suggested commands call its jobs by their names alone, those of other kinds by `kind/name`."""

_RENAMED = {"tensorflow.org/v1alpha1": "write mlkube.io/v1beta1, which has the same fields"}
"""API versions that are not served: this one existed for a few weeks of 2017, between mlkube.io and kubeflow.org."""


def framework_of(api_version: Json, kind: Json) -> Framework | None:
    """The framework of a job, or None. Kinds are compared without case, because TFJob and TfJob differ only in that."""
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return None
    group = api_version.partition("/")[0]
    for framework in FRAMEWORKS:
        if kind.lower() == framework.kind.lower() and group in _groups(framework):
            return framework
    return None


def misspelled_kind(api_version: Json, kind: Json) -> Problem | None:
    """A Problem for an object that was probably meant to be a job; None for valid jobs and other objects."""
    if not isinstance(kind, str):
        return None
    framework = framework_of(api_version, kind)
    if framework is not None:
        return _wrong_version(framework, str(api_version)) or _wrong_capitals(framework, str(api_version), kind)
    meant = kind if any(kind == framework.kind for framework in FRAMEWORKS) else nearest_name(kind, kinds())
    if meant is None:
        return None
    of_kind = next(framework for framework in FRAMEWORKS if framework.kind == meant)
    if kind.lower() == meant.lower():
        stated = api_version if isinstance(api_version, str) else describe_value(api_version)
        remedy = _RENAMED.get(stated, f"write {of_kind.resource.api_version}")
        return Problem("apiVersion", f"{meant} has no apiVersion {stated}", remedy)
    return Problem("kind", f"unknown kind {kind}", f"did you mean {meant}?")


def convertible_generations() -> list[str]:
    """The names of all generations that manifests can be converted to, oldest first for each kind."""
    conversions = (framework.conversion for framework in FRAMEWORKS)
    return list(dict.fromkeys(name for each in conversions if each is not None for name in each.generations))


def kinds() -> list[str]:
    """The names of all kinds, without those that differ only in case."""
    found: dict[str, str] = {}
    for framework in FRAMEWORKS:
        found.setdefault(framework.kind.lower(), framework.kind)
    return list(found.values())


def kinds_in_words() -> str:
    """The kinds in a sentence: `TFJobs, MPIJobs, JAXJobs and SharePods`."""
    *first, last = (f"{kind}s" for kind in kinds())
    return f"{', '.join(first)} and {last}" if first else last


def _wrong_version(framework: Framework, api_version: str) -> Problem | None:
    known = list(dict.fromkeys(dialect.api_version for dialect in framework.dialects))
    if api_version in known:
        return None
    meant = nearest_version(api_version, known) or nearest_name(api_version, known) or framework.resource.api_version
    return Problem("apiVersion", f"{framework.kind} has no version {api_version}", f"write {meant}")


def _wrong_capitals(framework: Framework, api_version: str, kind: str) -> Problem | None:
    """A Problem for a kind in the wrong case: mlkube.io has TfJob, all other groups have TFJob."""
    if kind == framework.kind:
        return None
    is_of_other_group = any(kind == each.kind for each in FRAMEWORKS)
    fault = f"{kind} has no version {api_version}" if is_of_other_group else f"unknown kind {kind}"
    return Problem("kind", fault, f"did you mean {framework.kind}?")


def _groups(framework: Framework) -> set[str]:
    return {dialect.api_version.partition("/")[0] for dialect in framework.dialects}
