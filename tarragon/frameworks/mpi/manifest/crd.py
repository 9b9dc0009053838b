"""The CustomResourceDefinition of MPIJob."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.crd import definition
from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.mpi.fields import KIND, SpecField
from tarragon.frameworks.mpi.manifest.schema import schema
from tarragon.kube.meta import CustomObject, Json, Resource

VERSIONS = ("v2beta1", "v1", "v1alpha2", "v1alpha1")
"""The versions. The first one is the storage version."""
SHORT_NAMES = ("mj", "mpij")

MPIJOBS = Resource(group=GROUP, version=VERSIONS[0], plural="mpijobs", kind=KIND, model=CustomObject)


def crd() -> dict[str, Json]:
    return definition(MPIJOBS, VERSIONS, schema, SpecField.REPLICAS, SHORT_NAMES)
