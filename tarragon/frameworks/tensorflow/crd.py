"""The CustomResourceDefinitions of TFJob and of its predecessor TfJob."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow.crd import definition
from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.tensorflow.dialects import mlkube
from tarragon.frameworks.tensorflow.fields import KIND, SpecField
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.kube.meta import CustomObject, Json, Resource

VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")
"""The versions of TFJob. The first one is the storage version."""

TFJOBS = Resource(group=GROUP, version=VERSIONS[0], plural="tfjobs", kind=KIND, model=CustomObject)
MLKUBE_TFJOBS = Resource(
    group=mlkube.GROUP, version=mlkube.VERSION, plural="tfjobs", kind=mlkube.KIND, model=CustomObject
)

_LEAST, _MOST = (
    # CEL writes a dash in a field's name as __dash__.
    f"self.{name.value.replace('-', '__dash__')}"
    for name in (SpecField.MIN_INSTANCES, SpecField.MAX_INSTANCES)
)
CEL_RULES: Mapping[str, str] = MappingProxyType(
    {
        "has(self.tfReplicaSpecs) || has(self.replicaSpecs) || has(self.replica_specs)": "the job has no replicas",
        "!has(self.tfReplicaSpecs) || !('Chief' in self.tfReplicaSpecs && 'Master' in self.tfReplicaSpecs)": (
            "Chief and Master are two names for the same replica"
        ),
        f"!has({_MOST}) || !has({_LEAST}) || {_LEAST} <= {_MOST}": "min-instances must not be more than max-instances",
    }
)


def crd() -> dict[str, Json]:
    """The CustomResourceDefinition of TFJob."""
    return definition(TFJOBS, VERSIONS, schema, SpecField.REPLICAS)


def mlkube_crd() -> dict[str, Json]:
    """The CustomResourceDefinition of the TfJob of 2017."""
    return definition(MLKUBE_TFJOBS, (mlkube.VERSION,), schema, SpecField.REPLICAS)
