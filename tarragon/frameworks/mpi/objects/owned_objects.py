"""The objects of an MPIJob beside its pods: host files that follow its size, a key pair, permissions."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.objects import pod_wiring
from tarragon.frameworks.mpi.objects.host_files import discovery_script, host_file, host_file_name
from tarragon.frameworks.mpi.objects.kubexec import kubexec_script
from tarragon.frameworks.mpi.objects.names import (
    DISCOVERY_SCRIPT,
    KUBEXEC,
    config_name,
    launcher_name,
    pod_name,
    secret_name,
)
from tarragon.frameworks.mpi.options import HostFileFormat, Transport, options_of
from tarragon.frameworks.owned_objects import Generated, OwnedContent, OwnedObject, RequiredPermission, Upkeep
from tarragon.frameworks.plugin import JobObservation
from tarragon.job.model import TrainingJob
from tarragon.kube.core import PODS, SECRETS, SERVICE_ACCOUNTS
from tarragon.kube.meta import JsonObject, PartialObjectMetadata, Resource

_RBAC = "rbac.authorization.k8s.io"
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", model=OwnedContent)
ROLES = Resource(group=_RBAC, version="v1", plural="roles", kind="Role", model=OwnedContent)
ROLE_BINDINGS = Resource(
    group=_RBAC, version="v1", plural="rolebindings", kind="RoleBinding", model=PartialObjectMetadata
)

KEPT_CURRENT = (CONFIG_MAPS, ROLES)

_NO_EXEC = "MPIJobs before v2beta1 do not start"

PERMISSIONS = (
    RequiredPermission(
        resource=CONFIG_MAPS,
        verbs=("get", "list", "watch", "patch"),
        reason="to keep the host file of an MPIJob current; only ConfigMaps with Tarragon's label are watched",
        consequence="MPIJobs do not start",
    ),
    RequiredPermission(
        resource=SECRETS,
        verbs=("create",),
        reason="to give the pods of an MPIJob a key pair for SSH, which the operator cannot read again",
        consequence="MPIJobs of v2beta1 do not start",
    ),
    RequiredPermission(
        resource=SERVICE_ACCOUNTS,
        verbs=("create", "get"),
        reason="to give the launcher of an MPIJob before v2beta1 an account of its own",
        consequence=_NO_EXEC,
    ),
    RequiredPermission(
        resource=ROLES,
        verbs=("create", "get", "list", "watch", "patch"),
        reason="to let this account run commands in the job's own workers, and in no other pods",
        consequence=_NO_EXEC,
    ),
    RequiredPermission(
        resource=ROLE_BINDINGS,
        verbs=("create", "get"),
        reason="to bind the account to its role",
        consequence=_NO_EXEC,
    ),
    RequiredPermission(
        resource=PODS,
        subresource="exec",
        verbs=("create",),
        reason="because the API server lets nobody grant a permission that they lack; the operator never uses it",
        consequence=_NO_EXEC,
    ),
)


def owned_objects(observation: JobObservation) -> Iterator[OwnedObject]:
    """The objects of the job, in the order in which they are created."""
    job = observation.job
    yield _config_map(observation)
    if options_of(job).transport is Transport.SSH:
        yield _secret(job)
    elif not _has_own_account(job):
        yield from _permissions(observation)


def _config_map(observation: JobObservation) -> OwnedObject:
    options = options_of(observation.job)
    data = {
        **{host_file_name(options.implementation, form): host_file(observation, form) for form in HostFileFormat},
        DISCOVERY_SCRIPT: discovery_script(observation),
    }
    if options.transport is Transport.EXEC:
        data[KUBEXEC] = kubexec_script(options)
    body = {"metadata": {"name": config_name(observation.job)}, "data": data}
    # An elastic program polls its hosts each second; a kubelet would let it wait for a minute.
    urgent_for = frozenset() if observation.job.elastic_policy is None else frozenset({LAUNCHER})
    return OwnedObject(resource=CONFIG_MAPS, body=body, upkeep=Upkeep.KEEP_CURRENT, urgent_for=urgent_for)


def _secret(job: TrainingJob) -> OwnedObject:
    body = {"metadata": {"name": secret_name(job)}, "type": "kubernetes.io/ssh-auth"}
    return OwnedObject(resource=SECRETS, body=body, upkeep=Upkeep.CREATE_UNSEEN, generated=Generated.SSH_KEY_PAIR)


def _permissions(observation: JobObservation) -> Iterator[OwnedObject]:
    """A service account that may run commands in the workers of this job, by their names."""
    metadata = {"name": launcher_name(observation.job)}
    yield OwnedObject(resource=SERVICE_ACCOUNTS, body={"metadata": metadata}, upkeep=Upkeep.CREATE_ONCE)
    workers = [pod_name(observation.job, each) for each in observation.replicas if each.type == WORKER]
    rules: list[JsonObject] = [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": workers, "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers, "verbs": ["create"]},
    ]
    # Without names, a rule would mean all pods.
    role = {"metadata": metadata, "rules": rules if workers else []}
    yield OwnedObject(resource=ROLES, body=role, upkeep=Upkeep.KEEP_CURRENT)
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": metadata["name"], "namespace": observation.job.key.namespace}],
    }
    yield OwnedObject(resource=ROLE_BINDINGS, body=binding, upkeep=Upkeep.CREATE_ONCE)


def _has_own_account(job: TrainingJob) -> bool:
    """Whether the user names a service account for the launcher, which then needs these permissions itself."""
    return pod_wiring.account(job) != launcher_name(job)
