"""The rules of every kind: one row of a table for each built-in kind that has any, and one for all custom kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.crd import definitions
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import FieldError
from tarragon.localcluster.validation import core_kinds, events, jobs, pod_scheduling, pods, rbac, services, workloads

Json = dict[str, Any]


def _nothing(_: Json) -> None:
    pass


def _no_change(_: Json, __: Mapping[str, Any]) -> None:
    pass


def _no_faults(_: Mapping[str, Any]) -> Iterable[FieldError]:
    return ()


def _no_update_faults(_: Mapping[str, Any], __: Mapping[str, Any]) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How objects of a kind are defaulted and validated. `prepare_create` and `prepare_update` work in place.

    `keeps_status`: a create keeps the status; `has_generation`: a change of the spec increments the generation;
    `requires_resource_version`: an update must have a resourceVersion; `creates_on_update`: a PUT creates a missing
    object; `returns_deleted`: a delete returns the object instead of a Status.
    """

    name_fault: Callable[[str], str] = name_validation.subdomain
    prepare_create: Callable[[Json], None] = _nothing
    prepare_update: Callable[[Json, Mapping[str, Any]], None] = _no_change
    faults: Callable[[Mapping[str, Any]], Iterable[FieldError]] = _no_faults
    create_faults: Callable[[Mapping[str, Any]], Iterable[FieldError]] = _no_faults
    update_faults: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[FieldError]] = _no_update_faults
    status_faults: Callable[[Mapping[str, Any]], Iterable[FieldError]] = _no_faults
    keeps_status: bool = False
    has_generation: bool = False
    requires_resource_version: bool = False
    creates_on_update: bool = False
    returns_deleted: bool = False


_PLAIN = KindRules()
_CUSTOM = KindRules(has_generation=True, requires_resource_version=True)
_ROLE = KindRules(name_fault=name_validation.path_segment, creates_on_update=True, faults=rbac.role_faults)
_BINDING = replace(
    _ROLE,
    prepare_create=rbac.prepare_binding,
    prepare_update=rbac.default_binding,
    faults=rbac.binding_faults,
    update_faults=rbac.binding_update_faults,
)
_BUILT_IN: Mapping[str, KindRules] = {
    "deployments.apps": KindRules(
        prepare_create=workloads.prepare_deployment,
        prepare_update=workloads.default_deployment,
        faults=workloads.deployment_faults,
        update_faults=workloads.selector_update_faults,
        has_generation=True,
    ),
    "jobs.batch": KindRules(
        prepare_create=jobs.prepare_job,
        prepare_update=jobs.default_job,
        faults=jobs.job_faults,
        update_faults=jobs.job_update_faults,
        has_generation=True,
    ),
    "replicasets.apps": KindRules(
        prepare_create=workloads.prepare_replica_set,
        prepare_update=workloads.default_replica_set,
        faults=workloads.replica_set_faults,
        update_faults=workloads.selector_update_faults,
        has_generation=True,
    ),
    "configmaps": KindRules(faults=core_kinds.config_map_faults, update_faults=core_kinds.config_map_update_faults),
    "customresourcedefinitions.apiextensions.k8s.io": KindRules(
        prepare_create=definitions.prepare_create,
        prepare_update=definitions.prepare_update,
        faults=definitions.validate,
        update_faults=definitions.validate_update,
        has_generation=True,
        requires_resource_version=True,
        returns_deleted=True,
    ),
    "endpoints": KindRules(creates_on_update=True),
    "endpointslices.discovery.k8s.io": KindRules(
        prepare_create=services.prepare_slice,
        prepare_update=services.default_slice,
        faults=services.slice_faults,
        update_faults=services.slice_update_faults,
        has_generation=True,
    ),
    "events.events.k8s.io": KindRules(
        prepare_create=events.prepare_new_form,
        faults=events.new_form_faults,
        create_faults=events.creation_faults,
        creates_on_update=True,
    ),
    "events": KindRules(prepare_create=events.prepare, faults=events.faults, creates_on_update=True),
    "leases.coordination.k8s.io": KindRules(
        faults=core_kinds.lease_faults, requires_resource_version=True, creates_on_update=True
    ),
    "namespaces": KindRules(
        name_fault=name_validation.label,
        prepare_create=core_kinds.prepare_namespace,
        prepare_update=core_kinds.update_namespace,
        returns_deleted=True,
    ),
    "nodes": KindRules(prepare_create=core_kinds.prepare_node, faults=core_kinds.node_faults, keeps_status=True),
    "persistentvolumeclaims": KindRules(
        prepare_create=core_kinds.prepare_claim,
        prepare_update=core_kinds.default_claim,
        faults=core_kinds.claim_faults,
        update_faults=core_kinds.claim_update_faults,
        returns_deleted=True,
    ),
    "persistentvolumes": KindRules(prepare_create=core_kinds.prepare_volume, returns_deleted=True),
    "pods": KindRules(
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        faults=pods.faults,
        create_faults=pod_scheduling.create_faults,
        update_faults=pods.update_faults,
        has_generation=True,
        returns_deleted=True,
    ),
    "priorityclasses.scheduling.k8s.io": KindRules(
        prepare_create=core_kinds.prepare_priority_class,
        update_faults=core_kinds.priority_class_update_faults,
        has_generation=True,
    ),
    "storageclasses.storage.k8s.io": KindRules(
        prepare_create=core_kinds.prepare_storage_class, faults=core_kinds.storage_class_faults, returns_deleted=True
    ),
    "resourcequotas": KindRules(returns_deleted=True),
    "secrets": KindRules(
        prepare_create=core_kinds.prepare_secret,
        prepare_update=core_kinds.update_secret,
        faults=core_kinds.secret_faults,
        update_faults=core_kinds.secret_update_faults,
    ),
    "serviceaccounts": KindRules(returns_deleted=True),
    "services": KindRules(
        name_fault=name_validation.label,
        prepare_create=services.prepare_service,
        prepare_update=services.default_service,
        faults=services.service_faults,
        update_faults=services.service_update_faults,
        status_faults=services.service_status_faults,
        returns_deleted=True,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": replace(_BINDING, faults=rbac.cluster_binding_faults),
    "clusterroles.rbac.authorization.k8s.io": replace(_ROLE, faults=rbac.cluster_role_faults),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "roles.rbac.authorization.k8s.io": _ROLE,
}


def rules_of(served: ServedKind) -> KindRules:
    """The rules of a kind, empty for a built-in kind without a row."""
    return _CUSTOM if served.is_custom else _BUILT_IN.get(served.full_name, _PLAIN)
