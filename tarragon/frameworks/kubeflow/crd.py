"""The CustomResourceDefinition of a kind. All versions have the same schema, so that none needs conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.schema import Schema
from tarragon.kube.meta import CustomObject, Json, Resource

STATUS_PATH = ".status.tarragon"


def definition(
    resource: Resource[CustomObject],
    versions: Sequence[str],
    schema: Callable[[], Schema],
    replica_specs: str,
    short_names: Sequence[str] = (),
) -> dict[str, Json]:
    """The definition. The first version is the storage version.

    `schema` returns a new value at each call. The scale subresource is that of the workers in the map `replica_specs`.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **({"shortNames": list(short_names)} if short_names else {}),
                "categories": ["all"],
            },
            "conversion": {"strategy": "None"},
            "versions": [_version(name, schema(), replica_specs, is_stored=name == versions[0]) for name in versions],
        },
    }


def _version(name: str, schema: Schema, replica_specs: str, *, is_stored: bool) -> dict[str, Json]:
    """One version. Its paths avoid `status.replicaStatuses`, which is a list in some generations.

    A path into it would make every write of such an object fail, even its deletion.
    """
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": f".spec.{replica_specs}.{WORKER}.replicas",
                "statusReplicasPath": f"{STATUS_PATH}.replicas",
                "labelSelectorPath": f"{STATUS_PATH}.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "State", "type": "string", "jsonPath": f"{STATUS_PATH}.state"},
            {"name": "Ready", "type": "string", "jsonPath": f"{STATUS_PATH}.ready"},
            {"name": "Restarts", "type": "integer", "jsonPath": f"{STATUS_PATH}.restarts.total"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Progress", "type": "string", "jsonPath": f"{STATUS_PATH}.progress.text"},
            {"name": "Reason", "type": "string", "jsonPath": f"{STATUS_PATH}.reason"},
            {"name": "Message", "type": "string", "jsonPath": f"{STATUS_PATH}.message", "priority": 1},
        ],
    }
