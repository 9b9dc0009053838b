"""The CustomResourceDefinition of MPIJob."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow.crd import SELECTABLE_FIELDS, definition, with_cel_rules, with_selectable_fields
from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.mpi.fields import KIND, LAUNCHER, MAX_REPLICAS, MIN_REPLICAS, SpecField, V1Alpha1Field
from tarragon.frameworks.mpi.manifest.schema import schema
from tarragon.kube.meta import CustomObject, Json, Resource

VERSIONS = ("v2beta1", "v1", "v1alpha2", "v1alpha1")
"""The versions. The first one is the storage version."""
SHORT_NAMES = ("mj", "mpij")

MPIJOBS = Resource(group=GROUP, version=VERSIONS[0], plural="mpijobs", kind=KIND, model=CustomObject)

_GROUPS = f"self.{SpecField.REPLICAS}"
_LAUNCHER = f"{_GROUPS}.{LAUNCHER}"
_ELASTIC = f"self.{SpecField.ELASTIC_POLICY}"
_LEAST, _MOST = f"{_ELASTIC}.{MIN_REPLICAS}", f"{_ELASTIC}.{MAX_REPLICAS}"
CEL_RULES: Mapping[str, str] = MappingProxyType(
    {
        f"has({_GROUPS}) || has(self.{V1Alpha1Field.TEMPLATE})": "the job has no replicas",
        f"!has({_GROUPS}) || !has({_LAUNCHER}) || !has({_LAUNCHER}.replicas) || {_LAUNCHER}.replicas == 1": (
            "a job has one Launcher"
        ),
        f"!has({_ELASTIC}) || !has({_LEAST}) || !has({_MOST}) || {_LEAST} <= {_MOST}": (
            "minReplicas must not be more than maxReplicas"
        ),
    }
)


def crd() -> dict[str, Json]:
    defined = definition(MPIJOBS, VERSIONS, schema, SpecField.REPLICAS, SHORT_NAMES)
    return with_cel_rules(with_selectable_fields(defined, SELECTABLE_FIELDS), CEL_RULES)
