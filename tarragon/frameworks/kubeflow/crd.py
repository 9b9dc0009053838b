"""The CustomResourceDefinition of a kind. All versions have the same schema, so that none needs conversion.

Servers ignore the fields that they do not know: CEL rules before 1.25, selectable fields before 1.31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tarragon.frameworks.kubeflow.fields import RUN_POLICY, WORKER, PolicyField
from tarragon.frameworks.kubeflow.schema import Schema
from tarragon.kube.meta import CustomObject, Json, JsonObject, Resource

STATUS_PATH = ".status.tarragon"
CATEGORY = "tarragon"
"""All kinds of jobs, for `kubectl get tarragon`. kubectl resolves a plural that two groups serve to one of them."""
COLUMNS: Sequence[Mapping[str, Json]] = (
    {"name": "State", "type": "string", "jsonPath": f"{STATUS_PATH}.state"},
    {"name": "Ready", "type": "string", "jsonPath": f"{STATUS_PATH}.ready"},
    {"name": "Restarts", "type": "integer", "jsonPath": f"{STATUS_PATH}.restarts.total"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Progress", "type": "string", "jsonPath": f"{STATUS_PATH}.progress.text"},
    {"name": "Reason", "type": "string", "jsonPath": f"{STATUS_PATH}.reason"},
    {"name": "Message", "type": "string", "jsonPath": f"{STATUS_PATH}.message", "priority": 1},
)
"""The columns of `kubectl get`. Their paths avoid `status.replicaStatuses`, which is a list in some generations: a path
into it would make every write of such an object fail, even its deletion.
"""


STATUS_FIELDS: Sequence[str] = (f"{STATUS_PATH}.state", f"{STATUS_PATH}.reason")
"""The selectable fields that all kinds have."""
SELECTABLE_FIELDS: Sequence[str] = (
    *STATUS_FIELDS,
    f".spec.{RUN_POLICY}.{PolicyField.SUSPEND}",
    f".spec.{RUN_POLICY}.{PolicyField.MANAGED_BY}",
    f".spec.{RUN_POLICY}.{PolicyField.SCHEDULING}.queue",
    f".spec.{RUN_POLICY}.{PolicyField.SCHEDULING}.priorityClass",
)
"""The fields that `kubectl get --field-selector` and watches can select by; at most eight."""


def definition(
    resource: Resource[CustomObject],
    versions: Sequence[str],
    schema: Callable[[], Schema],
    replica_specs: str = "",
    short_names: Sequence[str] = (),
) -> dict[str, Json]:
    """The definition. The first version is the storage version.

    `schema` returns a new value at each call. The scale subresource is that of the workers in the map `replica_specs`;
    there is none without such a map.
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
                "categories": ["all", CATEGORY],
            },
            "conversion": {"strategy": "None"},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == versions[0],
                    "schema": {"openAPIV3Schema": schema()},
                    "subresources": {"status": {}, **({"scale": _scale(replica_specs)} if replica_specs else {})},
                    "additionalPrinterColumns": [dict(column) for column in COLUMNS],
                }
                for name in versions
            ],
        },
    }


def with_columns(crd: JsonObject, columns: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The definition with these columns of `kubectl get` in all of its versions."""
    return _with_versions(crd, lambda version: {**version, "additionalPrinterColumns": [*map(dict, columns)]})


def with_selectable_fields(crd: JsonObject, paths: Sequence[str]) -> dict[str, Json]:
    """The definition with these selectable fields, which its schema must have as text, numbers or truth values."""
    return _with_versions(crd, lambda version: {**version, "selectableFields": [{"jsonPath": path} for path in paths]})


def with_cel_rules(crd: JsonObject, rules: Mapping[str, str]) -> dict[str, Json]:
    """The definition with these rules about `spec`, in CEL, with their messages.

    A rule rejects only jobs in which the operator finds problems, too, whatever their generation: until 1.30 servers
    check all rules at each write of the status.
    """
    validations = [{"rule": rule, "message": message} for rule, message in rules.items()]

    def with_rules(version: dict[str, Json]) -> dict[str, Json]:
        schema = version["schema"]["openAPIV3Schema"]
        spec = {**schema["properties"]["spec"], "x-kubernetes-validations": validations}
        whole = {**schema, "properties": {**schema["properties"], "spec": spec}}
        return {**version, "schema": {"openAPIV3Schema": whole}}

    return _with_versions(crd, with_rules)


def _with_versions(crd: JsonObject, change: Callable[[dict[str, Json]], dict[str, Json]]) -> dict[str, Json]:
    return {**crd, "spec": {**crd["spec"], "versions": [change(version) for version in crd["spec"]["versions"]]}}


def _scale(replica_specs: str) -> dict[str, Json]:
    return {
        "specReplicasPath": f".spec.{replica_specs}.{WORKER}.replicas",
        "statusReplicasPath": f"{STATUS_PATH}.replicas",
        "labelSelectorPath": f"{STATUS_PATH}.selector",
    }
