"""The CustomResourceDefinitions. All versions have the same schema, so that none needs conversion."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.frameworks.tensorflow.fields import GROUP, KIND
from tarragon.frameworks.tensorflow.schema import schema
from tarragon.kube.meta import Json

VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")
"""The versions of TFJob. The first one is the storage version."""

STATUS_PATH = ".status.tarragon"


def crd() -> dict[str, Json]:
    """The CustomResourceDefinition of TFJob."""
    return definition(GROUP, KIND, VERSIONS)


def definition(group: str, kind: str, versions: Sequence[str]) -> dict[str, Json]:
    """The CustomResourceDefinition of a kind with the plural `tfjobs`. The first version is the storage version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"tfjobs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": "tfjobs",
                "singular": "tfjob",
                "categories": ["all"],
            },
            "conversion": {"strategy": "None"},
            "versions": [_version(name, is_stored=name == versions[0]) for name in versions],
        },
    }


def _version(name: str, *, is_stored: bool) -> dict[str, Json]:
    """One version. Its paths avoid `status.replicaStatuses`, which is a list in some generations.

    A path into it would make every write of such an object fail, even its deletion.
    """
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.tfReplicaSpecs.Worker.replicas",
                "statusReplicasPath": f"{STATUS_PATH}.replicas",
                "labelSelectorPath": f"{STATUS_PATH}.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "State", "type": "string", "jsonPath": f"{STATUS_PATH}.state"},
            {"name": "Ready", "type": "string", "jsonPath": f"{STATUS_PATH}.ready"},
            {"name": "Restarts", "type": "integer", "jsonPath": f"{STATUS_PATH}.restarts.total"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Reason", "type": "string", "jsonPath": f"{STATUS_PATH}.reason"},
            {"name": "Message", "type": "string", "jsonPath": f"{STATUS_PATH}.message", "priority": 1},
        ],
    }
