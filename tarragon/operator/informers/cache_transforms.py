"""What the caches keep of each object: what the operator reads of it, and equal parts once for all.

Ten thousand jobs with their pods are to fit into a small container. Whoever wants to read more of a pod adds it here;
the scenarios of tests/plan look through the same eyes.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern

from msgspec.structs import force_setattr, replace

from tarragon.frameworks.recognition import LAST_APPLIED
from tarragon.job.leaving import CHECKPOINT, LEAVING
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Running,
    Service,
    ServiceSpec,
)
from tarragon.kube.meta import NULL, CustomObject, Json, ObjectMeta, OwnerReference
from tarragon.plan.objects.generation_label import ROUND_ANNOTATION
from tarragon.plan.objects.placement import REQUIRED

_INDEX_LABELS = frozenset({"training.kubeflow.org/replica-index", "replica-index", "tf-replica-index", "task_index"})
"""Of our own pods, which have all other labels in common with those of their type."""
_HEALTHY = frozenset({"Initialized", "Ready", "ContainersReady", "PodScheduled", "PodReadyToStartContainers"})
"""Conditions that say nothing while they hold."""

_OUR_NOTES = (ROUND_ANNOTATION, LEAVING, CHECKPOINT)

# One empty value for all: each of its own would take more room than what else is kept of a healthy pod.
_NO_WORDS: dict[str, str] = {}
_NO_FINALIZERS: list[str] = []
_NO_CONDITIONS: list[PodCondition] = []
_NO_STATUSES: list[ContainerStatus] = []
_RUNNING = ContainerState(running=Running())
_NOTHING_HAS_BEEN = ContainerState()
_NO_SERVICE_SPEC = ServiceSpec()


class KeptPod(Pod, frozen=True):
    """Without what its containers are to do, and without most annotations. Labels are for rules between pods."""

    def __post_init__(self) -> None:
        force_setattr(self, "metadata", _metadata(self.metadata, _labels(self.metadata)))
        force_setattr(self, "spec", _pod_spec(encode(_slim(self.spec))))
        force_setattr(self, "status", _pod_status(self.status))


class KeptService(Service, frozen=True):
    """Its metadata."""

    def __post_init__(self) -> None:
        force_setattr(self, "metadata", _metadata(self.metadata, _NO_WORDS))
        force_setattr(self, "spec", _NO_SERVICE_SPEC)


class KeptJob(CustomObject, frozen=True):
    """Once it is marked, nobody asks any more who wrote it in which version."""

    def __post_init__(self) -> None:
        super().__post_init__()
        metadata = self.metadata
        if GENERATION_ANNOTATION in metadata.annotations:
            annotations = {name: value for name, value in metadata.annotations.items() if name != LAST_APPLIED}
            force_setattr(self, "metadata", replace(metadata, annotations=annotations, raw_managed_fields=NULL))


def _metadata(found: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(
        name=found.name,
        namespace=intern(found.namespace),
        uid=found.uid,
        resource_version=found.resource_version,
        creation_timestamp=found.creation_timestamp,
        deletion_timestamp=found.deletion_timestamp,
        deletion_grace_period_seconds=found.deletion_grace_period_seconds,
        labels=labels,
        annotations=_notes(found),
        finalizers=_NO_FINALIZERS,
        owner_references=_owners(encode(found.owner_references)),
    )


def _labels(found: ObjectMeta) -> dict[str, str]:
    written = tuple((name, value) for name, value in found.labels.items() if name not in _INDEX_LABELS)
    return _shared(written) if written else _NO_WORDS


@lru_cache(maxsize=4096)
def _shared(written: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {intern(name): intern(value) for name, value in written}


def _notes(found: ObjectMeta) -> dict[str, str]:
    """Those that we have written."""
    written = {name: intern(found.annotations[name]) for name in _OUR_NOTES if name in found.annotations}
    return written or _NO_WORDS


@lru_cache(maxsize=4096)
def _owners(written: bytes) -> list[OwnerReference]:
    """Those of a job's pods are equal, and come one after the other in a list."""
    return decode(written, list[OwnerReference])


def _slim(spec: PodSpec) -> PodSpec:
    """Who runs where, and how much it needs: what scheduling is told before is of no interest any more."""
    return replace(
        spec,
        containers=[_slim_container(container) for container in spec.containers],
        init_containers=[_slim_container(container) for container in spec.init_containers],
        node_selector={},
        # Until it is bound, it says which node the pod is for; and then, whom the pod keeps off.
        affinity=_keeping_off(spec.affinity) if spec.node_name else spec.affinity,
        tolerations=[],
        topology_spread_constraints=None,
    )


def _keeping_off(affinity: Json) -> Json:
    of_pods = affinity.get("podAntiAffinity") if isinstance(affinity, dict) else None
    required = of_pods.get(REQUIRED) if isinstance(of_pods, dict) else None
    return {"podAntiAffinity": {REQUIRED: required}} if required else None


def _slim_container(container: Container) -> Container:
    return Container(
        name=container.name,
        restart_policy=container.restart_policy,
        resources=container.resources,
        ports=[port for port in container.ports if port.host_port],
    )


@lru_cache(maxsize=4096)
def _pod_spec(written: bytes) -> PodSpec:
    return decode(written, PodSpec)


def _pod_status(found: PodStatus) -> PodStatus:
    return PodStatus(
        phase=intern(found.phase),
        reason=found.reason,
        message=found.message,
        nominated_node_name=intern(found.nominated_node_name),
        conditions=[one for one in found.conditions if _says_something(one)] or _NO_CONDITIONS,
        container_statuses=[_container_status(one) for one in found.container_statuses] or _NO_STATUSES,
        init_container_statuses=[_container_status(one) for one in found.init_container_statuses] or _NO_STATUSES,
    )


def _says_something(condition: PodCondition) -> bool:
    return condition.status != "True" or condition.type not in _HEALTHY


def _container_status(found: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(
        name=intern(found.name),
        ready=found.ready,
        started=found.started,
        restart_count=found.restart_count,
        image_id=intern(found.image_id),
        state=_RUNNING if found.state.running is not None and found.ready else found.state,
        last_state=found.last_state if found.last_state.terminated is not None else _NOTHING_HAS_BEEN,
    )
