"""Rules that detect other training operators on the cluster, as two of them would create every pod twice.

Pure functions. An operator is detected by a lock that it renews, by its Deployment if that has available pods, or by
its running pod. A stopped operator is not detected, and Tarragon manages the jobs that it has not started.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import msgspec

from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import parse_time
from tarragon.kube.core import ENDPOINTS, LEASES, Container, Pod
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, Resource

LOCK_EXPIRY_SECONDS = 60.0
"""A lock renewed within this time is held. Holders renew every few seconds, but clocks differ."""

TRAINING_OPERATOR = "training-operator"
TF_OPERATOR = "tf-operator"
MPI_OPERATOR = "mpi-operator"
KUBESHARE = "KubeShare"

_OF_MPI = frozenset({TRAINING_OPERATOR, MPI_OPERATOR})
"""The operators of MPIJob, until it has a framework that states them."""

_KINDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        operator: frozenset(framework.kind for framework in FRAMEWORKS if operator in framework.other_operators)
        | (frozenset({"MPIJob"}) if operator in _OF_MPI else frozenset())
        for operator in (TRAINING_OPERATOR, TF_OPERATOR, MPI_OPERATOR, KUBESHARE)
    }
)
"""The kinds that each operator manages, of those that Tarragon manages."""

LOCKS: Mapping[str, str] = MappingProxyType(
    {
        "1ca428e5.training-operator.kubeflow.org": TRAINING_OPERATOR,
        "tf-operator": TF_OPERATOR,
        "mpi-operator": MPI_OPERATOR,
    }
)
"""Names of the operators' Leases and Endpoints, in any namespace."""

_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "training-operator": TRAINING_OPERATOR,
        "tf-operator": TF_OPERATOR,
        "tf-job-operator": TF_OPERATOR,
        "mpi-operator": MPI_OPERATOR,
        "kubeshare-device-manager": KUBESHARE,
    }
)
"""Names of the operators' Deployments and images, with `_` replaced by `-`.

Of KubeShare's programs, it is the device manager that creates the pods of SharePods. The name `kubeshare-scheduler` is
also that of KubeShare 2, which has no SharePods.
"""

PODS_OF_OPERATORS: Mapping[Key, str] = MappingProxyType({Key("kube-system", "kubeshare-device-manager"): KUBESHARE})
"""The operators that are installed as a pod without a Deployment."""

_LEADER = "control-plane.alpha.kubernetes.io/leader"
_SCHEME = "--enable-scheme"


class LeaderElectionLockSpec(PartialObject, frozen=True):
    """The spec of a Lease."""

    holder_identity: str | None = None
    renew_time: str | None = None


class LeaderElectionLock(PartialObject, frozen=True):
    """A leader election lock: a Lease, or an Endpoints object with an annotation."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaderElectionLockSpec = LeaderElectionLockSpec()

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or str(self._leader_annotation.get("holderIdentity") or "")

    @property
    def renewed_at(self) -> str:
        return self.spec.renew_time or str(self._leader_annotation.get("renewTime") or "")

    @property
    def _leader_annotation(self) -> Mapping[str, object]:
        try:
            record: object = json.loads(self.metadata.annotations.get(_LEADER, "{}"))
        except (ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


class _Container(Container, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None


class _PodSpec(PartialObject, frozen=True):
    containers: list[_Container] = []


class _Template(PartialObject, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(PartialObject, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class _DeploymentStatus(PartialObject, frozen=True):
    available_replicas: int = msgspec.field(default=0, name="availableReplicas")


class OperatorDeployment(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()


LEASE_LOCKS = LEASES.with_model(LeaderElectionLock)
ENDPOINTS_LOCKS = ENDPOINTS.with_model(LeaderElectionLock)
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", model=OperatorDeployment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Locks, Deployments and pods found in the cluster."""

    leases: Sequence[LeaderElectionLock] = ()
    endpoints: Sequence[LeaderElectionLock] = ()
    deployments: Sequence[OperatorDeployment] = ()
    pods: Sequence[Pod] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why objects could not be listed, by the plural of their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherOperator:
    """A detected operator; `evidence` names the lock, Deployment or pod that it was detected by."""

    program: str
    kinds: frozenset[str]
    evidence: str

    def __str__(self) -> str:
        return f"{self.program} ({self.evidence})"


def detect_operators(found: ClusterState, before: ClusterState, now: dt.datetime) -> list[OtherOperator]:
    """Detect running operators. A lock renewed since the previous check (`before`) is held, whatever the clocks say."""
    return [
        *_of_locks("Lease", found.leases, before.leases, now),
        *_of_locks("Endpoints", found.endpoints, before.endpoints, now),
        *_of_deployments(found.deployments),
        *_of_pods(found.pods),
    ]


def operators_by_kind(seen: Sequence[OtherOperator]) -> dict[str, str]:
    """Descriptions of the operators that manage each kind."""
    by_kind: dict[str, list[str]] = {}
    for rival in seen:
        for kind in sorted(rival.kinds):
            by_kind.setdefault(kind, []).append(str(rival))
    return {kind: ", ".join(descriptions) for kind, descriptions in by_kind.items()}


def _of_locks(
    kind: str, locks: Sequence[LeaderElectionLock], before: Sequence[LeaderElectionLock], now: dt.datetime
) -> Iterator[OtherOperator]:
    renewed_before = {lock.metadata.uid: lock.renewed_at for lock in before}
    for lock in locks:
        program = LOCKS.get(lock.metadata.name)
        if program is None or not lock.holder or not lock.renewed_at:
            continue
        if renewed_before.get(lock.metadata.uid, lock.renewed_at) == lock.renewed_at and not _is_fresh(lock, now):
            continue
        yield OtherOperator(
            program=program,
            kinds=_KINDS[program],
            evidence=f"{kind} {lock.metadata.key}, held by {lock.holder}",
        )


def _is_fresh(lock: LeaderElectionLock, now: dt.datetime) -> bool:
    try:
        renewed = parse_time(lock.renewed_at)
    except ValueError:
        return False
    return abs((now - renewed).total_seconds()) < LOCK_EXPIRY_SECONDS


def _of_deployments(deployments: Sequence[OperatorDeployment]) -> Iterator[OtherOperator]:
    for deployment in deployments:
        if deployment.status.available_replicas < 1:
            continue
        containers = deployment.spec.template.spec.containers
        names = [_image_name(container.image) for container in containers]
        # The image is more reliable than the Deployment's name, which the installer chooses.
        program = next((_PROGRAMS[name] for name in [*names, deployment.metadata.name] if name in _PROGRAMS), None)
        kinds = _KINDS[program] & _schemes(containers) if program is not None else frozenset()
        if program is not None and kinds:
            yield OtherOperator(program=program, kinds=kinds, evidence=f"Deployment {deployment.metadata.key}")


def _of_pods(pods: Sequence[Pod]) -> Iterator[OtherOperator]:
    for pod in pods:
        program = PODS_OF_OPERATORS.get(pod.metadata.key)
        if program is not None and pod.status.phase == "Running":
            yield OtherOperator(program=program, kinds=_KINDS[program], evidence=f"Pod {pod.metadata.key}")


def _image_name(image: str) -> str:
    """`training-operator` of `registry:5000/kubeflow/training-operator:v1-855e096@sha256:…`."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name.replace("_", "-").lower()


def _schemes(containers: Sequence[_Container]) -> frozenset[str]:
    """The kinds enabled by `--enable-scheme` flags of a training-operator; all kinds without such flags."""
    arguments = [word for container in containers for word in (*(container.command or ()), *(container.args or ()))]
    enabled = {word.partition("=")[2].lower() for word in arguments if word.startswith(f"{_SCHEME}=")}
    enabled |= {value.lower() for word, value in pairwise(arguments) if word == _SCHEME}
    kinds = frozenset(kind for kinds in _KINDS.values() for kind in kinds)
    return frozenset(kind for kind in kinds if kind.lower() in enabled) if enabled else kinds
