"""Other training operators at work on the same cluster: two of them would make every pod twice.

Pure: what was found goes in, who is at work comes out. Each is told by a lock that it renews, or by a Deployment of it
with pods. Of stopped ones neither says anything: what they have not begun becomes ours by itself.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import msgspec

from tarragon.kube.codec import moment
from tarragon.kube.core import ENDPOINTS, LEASES, Container
from tarragon.kube.meta import ObjectMeta, Resource, Struct

FRESH_SECONDS = 60.0
"""A lock that was renewed less long ago is held. Holders renew every few seconds, but clocks differ."""

TRAINING_OPERATOR = "training-operator"
TF_OPERATOR = "tf-operator"
MPI_OPERATOR = "mpi-operator"

_KINDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        TRAINING_OPERATOR: frozenset({"TFJob", "MPIJob"}),
        TF_OPERATOR: frozenset({"TFJob"}),
        MPI_OPERATOR: frozenset({"MPIJob"}),
    }
)
"""What each keeps, of the kinds that we keep."""

LOCKS: Mapping[str, str] = MappingProxyType(
    {
        "1ca428e5.training-operator.kubeflow.org": TRAINING_OPERATOR,
        "tf-operator": TF_OPERATOR,
        "mpi-operator": MPI_OPERATOR,
    }
)
"""Names of Leases and of Endpoints, in whatever namespace they are."""

_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "training-operator": TRAINING_OPERATOR,
        "tf-operator": TF_OPERATOR,
        "tf-job-operator": TF_OPERATOR,
        "mpi-operator": MPI_OPERATOR,
    }
)
"""Names of Deployments and of images, `_` read as `-`."""

_LEADER = "control-plane.alpha.kubernetes.io/leader"
_SCHEME = "--enable-scheme"


class LockSpec(Struct, frozen=True):
    holder_identity: str | None = None
    renew_time: str | None = None


class Lock(Struct, frozen=True):
    """A Lease, or an Endpoints object that says as an annotation who leads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LockSpec = LockSpec()

    @property
    def held_by(self) -> str:
        return self.spec.holder_identity or str(self._annotated.get("holderIdentity") or "")

    @property
    def renewed(self) -> str:
        return self.spec.renew_time or str(self._annotated.get("renewTime") or "")

    @property
    def _annotated(self) -> Mapping[str, object]:
        try:
            said: object = json.loads(self.metadata.annotations.get(_LEADER, "{}"))
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


class _Running(Container, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None


class _PodSpec(Struct, frozen=True):
    containers: list[_Running] = []


class _Template(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(Struct, frozen=True):
    template: _Template = _Template()


class _DeploymentStatus(Struct, frozen=True):
    available_replicas: int = msgspec.field(default=0, name="availableReplicas")


class Deployment(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()


LEASE_LOCKS = LEASES.reading(Lock)
ENDPOINTS_LOCKS = ENDPOINTS.reading(Lock)
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", model=Deployment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a look at the cluster has shown."""

    leases: Sequence[Lock] = ()
    endpoints: Sequence[Lock] = ()
    deployments: Sequence[Deployment] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """`program` as people call it; `evidence` says what shows that it is at work."""

    program: str
    kinds: frozenset[str]
    evidence: str

    def __str__(self) -> str:
        return f"{self.program} ({self.evidence})"


def rivals(found: Found, before: Found, now: dt.datetime) -> list[Rival]:
    """`before` is what the last look has shown: what was renewed since then is held, whatever the clocks say."""
    return [
        *_of_locks("Lease", found.leases, before.leases, now),
        *_of_locks("Endpoints", found.endpoints, before.endpoints, now),
        *_of_deployments(found.deployments),
    ]


def left_to(seen: Sequence[Rival]) -> dict[str, str]:
    """By kind, who keeps its jobs, in words."""
    by_kind: dict[str, list[str]] = {}
    for rival in seen:
        for kind in sorted(rival.kinds):
            by_kind.setdefault(kind, []).append(str(rival))
    return {kind: ", ".join(words) for kind, words in by_kind.items()}


def _of_locks(kind: str, locks: Sequence[Lock], before: Sequence[Lock], now: dt.datetime) -> Iterator[Rival]:
    renewed_before = {lock.metadata.uid: lock.renewed for lock in before}
    for lock in locks:
        program = LOCKS.get(lock.metadata.name)
        if program is None or not lock.held_by or not lock.renewed:
            continue
        if renewed_before.get(lock.metadata.uid, lock.renewed) == lock.renewed and not _is_fresh(lock, now):
            continue
        yield Rival(
            program=program,
            kinds=_KINDS[program],
            evidence=f"{kind} {lock.metadata.key}, held by {lock.held_by}",
        )


def _is_fresh(lock: Lock, now: dt.datetime) -> bool:
    try:
        renewed = moment(lock.renewed)
    except ValueError:
        return False
    return abs((now - renewed).total_seconds()) < FRESH_SECONDS


def _of_deployments(deployments: Sequence[Deployment]) -> Iterator[Rival]:
    for deployment in deployments:
        if deployment.status.available_replicas < 1:
            continue
        containers = deployment.spec.template.spec.containers
        names = [_image_name(container.image) for container in containers]
        # The image tells better than a name, which is whoever installed it's choice.
        program = next((_PROGRAMS[name] for name in [*names, deployment.metadata.name] if name in _PROGRAMS), None)
        kinds = _KINDS[program] & _schemes(containers) if program is not None else frozenset()
        if program is not None and kinds:
            yield Rival(program=program, kinds=kinds, evidence=f"Deployment {deployment.metadata.key}")


def _image_name(image: str) -> str:
    """`training-operator` of `registry:5000/kubeflow/training-operator:v1-855e096@sha256:…`."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name.replace("_", "-").lower()


def _schemes(containers: Sequence[_Running]) -> frozenset[str]:
    """The kinds that a training-operator was told to keep; without being told it keeps all."""
    words = [word for container in containers for word in (*(container.command or ()), *(container.args or ()))]
    chosen = {word.partition("=")[2].lower() for word in words if word.startswith(f"{_SCHEME}=")}
    chosen |= {after.lower() for word, after in pairwise(words) if word == _SCHEME}
    kinds = frozenset(kind for kinds in _KINDS.values() for kind in kinds)
    return frozenset(kind for kind in kinds if kind.lower() in chosen) if chosen else kinds
