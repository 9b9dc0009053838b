"""The CustomResourceDefinition of TFJob: every version served with the same schema, so that none needs conversion."""

from __future__ import annotations

from tarragon.frameworks.tensorflow.fields import GROUP, KIND
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.kube.meta import Json

VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")
"""The first one is stored."""

TARRAGON = ".status.tarragon"


def crd() -> dict[str, Json]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"tfjobs.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": "tfjobs",
                "singular": "tfjob",
                "categories": ["all"],
            },
            "conversion": {"strategy": "None"},
            "versions": [_version(name) for name in VERSIONS],
        },
    }


def _version(name: str) -> dict[str, Json]:
    """A path into `status.replicaStatuses` would make every write of a list-shaped status fail, deletes included."""
    return {
        "name": name,
        "served": True,
        "storage": name == VERSIONS[0],
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.tfReplicaSpecs.Worker.replicas",
                "statusReplicasPath": f"{TARRAGON}.replicas",
                "labelSelectorPath": f"{TARRAGON}.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "State", "type": "string", "jsonPath": f"{TARRAGON}.state"},
            {"name": "Ready", "type": "string", "jsonPath": f"{TARRAGON}.ready"},
            {"name": "Restarts", "type": "integer", "jsonPath": f"{TARRAGON}.restarts.total"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
