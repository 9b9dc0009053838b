"""The CustomResourceDefinitions of TFJob and of its predecessor TfJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tarragon.frameworks.kubeflow.crd import SELECTABLE_FIELDS, definition, with_cel_rules, with_selectable_fields
from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.tensorflow.dialects import mlkube
from tarragon.frameworks.tensorflow.fields import KIND, SpecField
from tarragon.frameworks.tensorflow.replica_types import CHIEF, EVALUATOR, MASTER
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
_GROUPS = f"self.{SpecField.REPLICAS}"
_CHIEFS = "[" + ", ".join(f"'{name}'" for name in (CHIEF, MASTER, EVALUATOR)) + "]"
CEL_RULES: Mapping[str, str] = MappingProxyType(
    {
        "has(self.tfReplicaSpecs) || has(self.replicaSpecs) || has(self.replica_specs)": "the job has no replicas",
        "!has(self.tfReplicaSpecs) || !('Chief' in self.tfReplicaSpecs && 'Master' in self.tfReplicaSpecs)": (
            "Chief and Master are two names for the same replica"
        ),
        f"!has({_GROUPS}) || {_CHIEFS}.all(name, !(name in {_GROUPS}) || !has({_GROUPS}[name].replicas)"
        f" || {_GROUPS}[name].replicas <= 1)": "a job has at most one Chief, Master or Evaluator",
        f"!has({_MOST}) || !has({_LEAST}) || {_LEAST} <= {_MOST}": "min-instances must not be more than max-instances",
    }
)


def crd() -> dict[str, Json]:
    """The CustomResourceDefinition of TFJob."""
    return _defined(TFJOBS, VERSIONS)


def mlkube_crd() -> dict[str, Json]:
    """The CustomResourceDefinition of the TfJob of 2017."""
    return _defined(MLKUBE_TFJOBS, (mlkube.VERSION,))


def _defined(resource: Resource[CustomObject], versions: Sequence[str]) -> dict[str, Json]:
    defined = definition(resource, versions, schema, SpecField.REPLICAS)
    return with_cel_rules(with_selectable_fields(defined, SELECTABLE_FIELDS), CEL_RULES)
