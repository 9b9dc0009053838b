"""Everything that the operator asks of a Kubernetes API, verb by verb, each with its reason.

The roles in deploy/ are written from this table, and `tarragon check` asks about it. A test runs the operator under
exactly these permissions and fails for one that is missing and for one that is never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
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
    SERVICES,
    STORAGE_CLASSES,
)
from tarragon.kube.meta import Json, Resource
from tarragon.operator.coexistence.rivals import DEPLOYMENTS, LOCKS
from tarragon.plan.config.published import RULES, SHARES
from tarragon.plan.objects.podgroup_kinds import BY_SCHEDULER, KINDS

LEASE_NAME = "tarragon"
"""Of the Lease that the leader holds, in the operator's own namespace."""


class Scope(Enum):
    """Where a permission is needed, and so in which role it stands."""

    CLUSTER = "cluster"
    """For what takes the whole cluster: finding places, for one. An installation for some namespaces does without."""
    JOBS = "jobs"
    """In every namespace whose jobs are kept."""
    HOME = "home"
    """In the namespace that the operator itself runs in."""
    PLACING = "placing"
    """There, too, for what only an operator of the whole cluster does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """`resource` is as roles write it, a subresource after a slash; without `names` it holds for all objects."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    scope: Scope
    reason: str
    names: tuple[str, ...] = ()
    without: str = ""
    """What is lost where it is not given; empty when no job is kept at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May I do this one thing? `namespace` is empty for all of them, `name` for every object."""

    permission: Permission
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        kind = self.permission.resource
        full = f"{kind}.{self.permission.group}" if self.permission.group else kind
        return f"{self.verb} {full}{f' {self.name}' if self.name else ''}{where}"

    @property
    def body(self) -> dict[str, Json]:
        """A SelfSubjectAccessReview to create; its answer has `status.allowed`."""
        resource, _, subresource = self.permission.resource.partition("/")
        asked = {
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
            "spec": {"resourceAttributes": {field: value for field, value in asked.items() if value}},
        }


def permissions(frameworks: Sequence[Framework] = FRAMEWORKS) -> tuple[Permission, ...]:
    """The whole table, in the order in which the roles have it."""
    return (*(each for framework in frameworks for each in _of_jobs(framework)), *_OF_ALL)


def questions(namespaces: Sequence[str], home: str) -> Iterator[Question]:
    """One for each verb; `namespaces` are those whose jobs are kept, none for all of them."""
    for permission in permissions():
        for namespace in _places(permission, namespaces, home):
            for verb in permission.verbs:
                for name in permission.names or ("",):
                    yield Question(permission=permission, verb=verb, namespace=namespace, name=name)


def _places(permission: Permission, namespaces: Sequence[str], home: str) -> Sequence[str]:
    match permission.scope:
        case Scope.CLUSTER:
            return [] if namespaces else [""]
        case Scope.JOBS:
            return namespaces or [""]
        case Scope.HOME:
            return [home]
        case Scope.PLACING:
            return [] if namespaces else [home]


def _of_jobs(framework: Framework) -> Iterator[Permission]:
    kind = framework.resource
    yield _needs(kind, ("list", "watch"), "to see every job and each change of it")
    yield _needs(
        kind,
        ("patch",),
        "to note on a new job which generation of the API it was written in, and what v1alpha1 filled in",
    )
    yield _needs(kind, ("delete",), "to remove a finished job when its ttlSecondsAfterFinished is over")
    yield _needs(
        kind,
        ("patch",),
        "to write the admission, the conditions and the counts",
        subresource="status",
    )
    yield _needs(
        kind,
        ("update",),
        "to own pods and services with blockOwnerDeletion where the admission plugin"
        " OwnerReferencesPermissionEnforcement is on, as in OpenShift; it allows nothing else, there being no such"
        " subresource",
        subresource="finalizers",
    )


def _needs(kind: Resource[Json], verbs: tuple[str, ...], reason: str, *, subresource: str = "") -> Permission:
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return Permission(group=kind.group, resource=resource, verbs=verbs, scope=Scope.JOBS, reason=reason)


_OF_ALL = (
    _needs(PODS, ("list", "watch"), "to see how each replica fares, and what is free on each node, whoever uses it"),
    _needs(PODS, ("create", "delete"), "to start replicas, and to end, replace and clean them up"),
    _needs(PODS, ("get",), "to see whose a pod is that has a replica's name already, when the watch lags behind"),
    Permission(
        group=PODS.group,
        resource=PODS.plural,
        verbs=("patch",),
        scope=Scope.JOBS,
        reason="to tell a replica that its place is taken, and until when it may save what it has done",
        without="replicas whose places are taken go without a note, whatever tarragon.dev/checkpoint-seconds says",
    ),
    _needs(SERVICES, ("list", "watch"), "to see which replicas have their names already"),
    _needs(SERVICES, ("create", "delete"), "to give each replica the name that the others call it by, and to take it"),
    _needs(SERVICES, ("get",), "to see whose a service is that has a replica's name already, as for pods"),
    _needs(CONFIG_MAPS, ("create",), "to give pods the scripts that they mount: of default parameter servers, of logs"),
    Permission(
        group=EVENTS.group,
        resource=EVENTS.plural,
        verbs=("create",),
        scope=Scope.JOBS,
        reason="to tell people what happens to a job",
        without="what happens to a job stands in its status alone",
    ),
    Permission(
        group=EVENTS.group,
        resource=EVENTS.plural,
        verbs=("patch",),
        scope=Scope.JOBS,
        reason="to count an event that is told again, rather than to tell it twice",
        without="events that are told again are not counted",
    ),
    Permission(
        group=NODES.group,
        resource=NODES.plural,
        verbs=("list", "watch"),
        scope=Scope.CLUSTER,
        reason="to find places for whole gangs, knowing what every node offers",
        without="placement is left to kube-scheduler: no gangs, no queue",
    ),
    *(
        Permission(
            group=kind.group,
            resource=kind.plural,
            verbs=("list", "watch"),
            scope=Scope.CLUSTER,
            reason=reason,
            without="replicas with claims are bound by kube-scheduler, to nodes that their volumes may not reach",
        )
        for kind, reason in (
            (PERSISTENT_VOLUME_CLAIMS, "to leave to kube-scheduler the pods whose claims are bound with them"),
            (PERSISTENT_VOLUMES, "to place a replica where its volume is"),
            (STORAGE_CLASSES, "to know which claims are bound with their pods, and where they can be"),
        )
    ),
    Permission(
        group=PRIORITY_CLASSES.group,
        resource=PRIORITY_CLASSES.plural,
        verbs=("list", "watch"),
        scope=Scope.CLUSTER,
        reason="to know which gangs go first, and which may take the places of others",
        without="all jobs are equally urgent, whatever class they name",
    ),
    *(
        Permission(
            group=kind.resource.group,
            resource=kind.resource.plural,
            verbs=("list", "watch", "create", "get", "patch", "delete"),
            scope=Scope.JOBS,
            reason=f"to keep the PodGroup that {scheduler} wants of a job whose pods name it",
            without=f"{scheduler} starts such jobs pod by pod, or not at all",
        )
        for scheduler, kind in ((name, KINDS[kind]) for name, kind in BY_SCHEDULER.items())
    ),
    *(
        Permission(
            group=kind.group,
            resource=kind.plural,
            verbs=("list",),
            scope=Scope.CLUSTER,
            reason=f"to see, by {what}, whether another training operator keeps jobs here already",
            names=names,
            without="jobs of another training operator may be taken for ours: every pod twice",
        )
        for kind, what, names in (
            (LEASES, "the Lease that it holds", tuple(LOCKS)),
            (ENDPOINTS, "the lock that the oldest ones hold", tuple(LOCKS)),
            (DEPLOYMENTS, "its Deployment", ()),
        )
    ),
    Permission(
        group=LEASES.group,
        resource=LEASES.plural,
        verbs=("create",),
        scope=Scope.HOME,
        reason="to make the Lease by which operators agree who leads; no role can name what is not there yet",
        without="an operator leads only with --no-leader-elect, alone",
    ),
    Permission(
        group=LEASES.group,
        resource=LEASES.plural,
        verbs=("get", "patch"),
        scope=Scope.HOME,
        reason="to hold that Lease, to renew it, and to give it back",
        names=(LEASE_NAME,),
        without="an operator leads only with --no-leader-elect, alone",
    ),
    Permission(
        group=CONFIG_MAPS.group,
        resource=CONFIG_MAPS.plural,
        verbs=("get", "patch"),
        scope=Scope.PLACING,
        reason="to let others read by which policy and rules it decides, and to tell them when these have changed; it"
        " makes the two as it makes scripts",
        names=(RULES, SHARES),
        without="`tarragon why` assumes the default policy and rules",
    ),
)

FOR_EVERYBODY = Permission(
    group=CONFIG_MAPS.group,
    resource=CONFIG_MAPS.plural,
    verbs=("get",),
    scope=Scope.PLACING,
    reason="to know by which policy and rules a job waits, which `tarragon why` reads",
    names=(RULES,),
)
"""Of whoever is let into the cluster, not of the operator: it names no namespace and no job."""
