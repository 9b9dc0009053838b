"""The table of the operator's Kubernetes API permissions, each with its reason.

The roles in deploy/ are generated from this table, and `tarragon check` verifies it. A test runs the operator with
exactly these permissions, and fails if one is missing or never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.annotations import NATIVE_POD_GROUP
from tarragon.kube.core import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
)
from tarragon.kube.meta import Json, Resource
from tarragon.operator.coexistence.detection import DEPLOYMENTS, LOCKS
from tarragon.operator.progress.authority import SECRET_NAME
from tarragon.operator.progress.token_reviews import TOKEN_REVIEWS
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP
from tarragon.plan.objects.podgroup_kinds import DEFAULT_KIND_BY_SCHEDULER, POD_GROUP_KINDS

LEASE_NAME = "tarragon"
"""Name of the leader's Lease in the operator's own namespace."""
ADMIT = "admit"
"""A verb that only the admission policy `tarragon-status` checks: who has it on the status of jobs may write what the
operator records."""


class Scope(Enum):
    """Where a permission is needed, which determines the role that contains it."""

    CLUSTER = "cluster"
    """In the whole cluster, for instance to place pods. An installation for some namespaces does without."""
    JOB_NAMESPACES = "jobs"
    """In every namespace whose jobs are managed."""
    OPERATOR_NAMESPACE = "home"
    """In the operator's own namespace."""
    OPERATOR_NAMESPACE_IF_CLUSTER_WIDE = "placing"
    """In the operator's own namespace, only if it watches the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A rule of a role. `resource` may have a subresource after a slash; empty `names` means all objects."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    scope: Scope
    reason: str
    names: tuple[str, ...] = ()
    consequence: str = ""
    """What does not work without the permission; empty if nothing works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionQuestion:
    """An access review of one verb. An empty `namespace` means all namespaces, an empty `name` all objects."""

    permission: Permission
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        suffix = f" in {self.namespace}" if self.namespace else ""
        kind = self.permission.resource
        full = f"{kind}.{self.permission.group}" if self.permission.group else kind
        return f"{self.verb} {full}{f' {self.name}' if self.name else ''}{suffix}"

    @property
    def access_review(self) -> dict[str, Json]:
        """The SelfSubjectAccessReview to create; the response contains `status.allowed`."""
        resource, _, subresource = self.permission.resource.partition("/")
        attributes = {
            "group": self.permission.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {field: value for field, value in attributes.items() if value}},
        }


def permissions(frameworks: Sequence[Framework] = FRAMEWORKS) -> tuple[Permission, ...]:
    """The whole table, in the order of the generated roles."""
    return (*(each for framework in frameworks for each in permissions_of(framework)), *_SHARED)


def questions(namespaces: Sequence[str], home: str) -> Iterator[PermissionQuestion]:
    """One question per verb, object name and namespace. Empty `namespaces` means that all jobs are managed."""
    for permission in permissions():
        for namespace in _namespaces(permission, namespaces, home):
            for verb in permission.verbs:
                for name in permission.names or ("",):
                    yield PermissionQuestion(permission=permission, verb=verb, namespace=namespace, name=name)


def _namespaces(permission: Permission, namespaces: Sequence[str], home: str) -> Sequence[str]:
    match permission.scope:
        case Scope.CLUSTER:
            return [] if namespaces else [""]
        case Scope.JOB_NAMESPACES:
            return namespaces or [""]
        case Scope.OPERATOR_NAMESPACE:
            return [home]
        case Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE:
            return [] if namespaces else [home]


def permissions_of(framework: Framework) -> Iterator[Permission]:
    """What the operator may do only for jobs of this kind."""
    kind = framework.resource
    yield _needs(kind, ("list", "watch"), "to watch jobs")
    yield _needs(
        kind,
        ("patch",),
        "to annotate a new job with the API version it was written in, and to set v1alpha1's defaults",
    )
    if framework.can_expire:
        yield _needs(kind, ("delete",), "to delete a finished job after its ttlSecondsAfterFinished")
    yield _needs(
        kind,
        ("patch",),
        "to write the admission, the conditions and the replica counts",
        subresource="status",
    )
    yield Permission(
        group=kind.group,
        resource=f"{kind.plural}/status",
        verbs=(ADMIT,),
        scope=Scope.JOB_NAMESPACES,
        reason="to write status.tarragon where the component admission-policy reserves it for operators",
        consequence="it can't admit jobs where the component admission-policy is installed",
    )
    yield _needs(
        kind,
        ("update",),
        "to set blockOwnerDeletion on pods and services where the admission plugin"
        " OwnerReferencesPermissionEnforcement is enabled, as in OpenShift; it allows nothing else, as jobs have no"
        " such subresource",
        subresource="finalizers",
    )
    for each in framework.required_permissions:
        resource = f"{each.resource.plural}/{each.subresource}" if each.subresource else each.resource.plural
        yield Permission(
            group=each.resource.group,
            resource=resource,
            verbs=each.verbs,
            scope=Scope.JOB_NAMESPACES,
            reason=each.reason,
            consequence=each.consequence,
        )


def _needs(kind: Resource[Json], verbs: tuple[str, ...], reason: str, *, subresource: str = "") -> Permission:
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return Permission(group=kind.group, resource=resource, verbs=verbs, scope=Scope.JOB_NAMESPACES, reason=reason)


_SHARED = (
    _needs(PODS, ("list", "watch"), "to follow the state of replicas, and the free capacity of each node"),
    _needs(PODS, ("create", "delete"), "to start, stop, replace and clean up replicas"),
    _needs(
        PODS,
        ("get",),
        "to find the owner of an existing pod with a replica's name while the cache is stale",
    ),
    Permission(
        group=PODS.group,
        resource=PODS.plural,
        verbs=("patch",),
        scope=Scope.JOB_NAMESPACES,
        reason="to annotate a pod before its eviction with the time until which it may save a checkpoint, and a pod"
        " that holds a GPU for others with the UUID of the GPU",
        consequence="replicas are evicted without notice, whatever tarragon.dev/checkpoint-seconds says, and only"
        " process nodes share their GPUs",
    ),
    _needs(SERVICES, ("list", "watch"), "to see which replicas have their service"),
    _needs(SERVICES, ("create", "delete"), "to give each replica a DNS name, and to remove it"),
    _needs(SERVICES, ("get",), "to find the owner of an existing service with a replica's name, as for pods"),
    _needs(CONFIG_MAPS, ("create",), "to create the scripts that pods mount: default parameter servers, logs"),
    Permission(
        group=EVENTS.group,
        resource=EVENTS.plural,
        verbs=("create",),
        scope=Scope.JOB_NAMESPACES,
        reason="to record events about jobs",
        consequence="jobs have no events, only their status",
    ),
    Permission(
        group=EVENTS.group,
        resource=EVENTS.plural,
        verbs=("patch",),
        scope=Scope.JOB_NAMESPACES,
        reason="to increment the count of a repeated event instead of creating another one",
        consequence="repeated events are not counted",
    ),
    Permission(
        group=NODES.group,
        resource=NODES.plural,
        verbs=("list", "watch"),
        scope=Scope.CLUSTER,
        reason="to place gangs by the capacity of each node",
        consequence="placement is left to kube-scheduler: no gangs, no queue",
    ),
    *(
        Permission(
            group=kind.group,
            resource=kind.plural,
            verbs=("list", "watch"),
            scope=Scope.CLUSTER,
            reason=reason,
            consequence="replicas with claims are bound by kube-scheduler, maybe to nodes that their volumes cannot "
            "reach",
        )
        for kind, reason in (
            (PERSISTENT_VOLUME_CLAIMS, "to leave pods with unbound claims (WaitForFirstConsumer) to kube-scheduler"),
            (PERSISTENT_VOLUMES, "to place a replica on a node that its volume can be used on"),
            (STORAGE_CLASSES, "to know which claims are bound with their pods, and in which topology"),
        )
    ),
    Permission(
        group=PRIORITY_CLASSES.group,
        resource=PRIORITY_CLASSES.plural,
        verbs=("list", "watch"),
        scope=Scope.CLUSTER,
        reason="to order gangs by priority, and to know which gangs may preempt others",
        consequence="all jobs have equal priority, whatever class they name",
    ),
    *(
        Permission(
            group=kind.resource.group,
            resource=kind.resource.plural,
            verbs=("list", "watch", "create", "get", "patch", "delete"),
            scope=Scope.JOB_NAMESPACES,
            reason=f"to manage the PodGroup of jobs whose pods are scheduled by {scheduler}",
            consequence=f"{scheduler} starts such jobs pod by pod, or not at all",
        )
        for scheduler, kind in (
            *((name, POD_GROUP_KINDS[kind]) for name, kind in DEFAULT_KIND_BY_SCHEDULER.items()),
            ("kube-scheduler", POD_GROUP_KINDS[NATIVE_POD_GROUP]),
        )
    ),
    *(
        Permission(
            group=kind.group,
            resource=kind.plural,
            verbs=("list",),
            scope=Scope.CLUSTER,
            reason=f"to detect, by {what}, whether another training operator already manages jobs here",
            names=names,
            consequence="jobs of another training operator may be managed twice, with every pod created twice",
        )
        for kind, what, names in (
            (LEASES, "the Lease that it holds", tuple(LOCKS)),
            (ENDPOINTS, "the lock that old versions hold", tuple(LOCKS)),
            (DEPLOYMENTS, "its Deployment", ()),
        )
    ),
    Permission(
        group=LEASES.group,
        resource=LEASES.plural,
        verbs=("create",),
        scope=Scope.OPERATOR_NAMESPACE,
        reason="to create the Lease for leader election; a role cannot restrict create by name",
        consequence="an operator leads only with --no-leader-elect, alone",
    ),
    Permission(
        group=LEASES.group,
        resource=LEASES.plural,
        verbs=("get", "patch"),
        scope=Scope.OPERATOR_NAMESPACE,
        reason="to acquire, renew and release that Lease",
        names=(LEASE_NAME,),
        consequence="an operator leads only with --no-leader-elect, alone",
    ),
    Permission(
        group=PODS.group,
        resource=PODS.plural,
        verbs=("get",),
        scope=Scope.OPERATOR_NAMESPACE,
        reason="to find the image of the operator's own pod, which init containers of launchers of MPIJobs before"
        " v2beta1 run to copy kubectl, and pods that hold GPUs for others run",
        consequence="launchers of MPIJobs before v2beta1 need --kubectl-delivery-image, and GPUs are shared on process"
        " nodes only, or with --gpu-anchor-image",
    ),
    Permission(
        group=PODS.group,
        resource=f"{PODS.plural}/log",
        verbs=("get",),
        scope=Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE,
        reason="to read which GPU a pod holds for others that share it; those pods are in this namespace",
        consequence="only process nodes share their GPUs",
    ),
    Permission(
        group=CONFIG_MAPS.group,
        resource=CONFIG_MAPS.plural,
        verbs=("get", "patch"),
        scope=Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE,
        reason="to publish the scheduling policy and rules, and to update them; creating them is covered by the"
        " permission to create scripts",
        names=(RULES_CONFIG_MAP, SHARES_CONFIG_MAP),
        consequence="`tarragon why` assumes the default policy and rules",
    ),
    Permission(
        group=TOKEN_REVIEWS.group,
        resource=TOKEN_REVIEWS.plural,
        verbs=("create",),
        scope=Scope.CLUSTER,
        reason="to ask whether the token of a program that reports its progress is valid, and of which pod it is",
        consequence="programs can't report their progress",
    ),
    Permission(
        group=SECRETS.group,
        resource=SECRETS.plural,
        verbs=("get", "patch"),
        scope=Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE,
        reason="to keep the certificate authority that the programs which report their progress trust",
        names=(SECRET_NAME,),
        consequence="programs can't report their progress",
    ),
)

FOR_AUTHENTICATED_USERS = Permission(
    group=CONFIG_MAPS.group,
    resource=CONFIG_MAPS.plural,
    verbs=("get",),
    scope=Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE,
    reason="to read the scheduling policy and rules, as `tarragon why` does",
    names=(RULES_CONFIG_MAP,),
)
"""Permission of every authenticated user, not of the operator; the data names no namespace and no job."""
