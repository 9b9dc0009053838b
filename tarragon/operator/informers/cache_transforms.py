"""Cache transforms: strip objects to the fields that the operator reads, and share equal parts between objects.

Ten thousand jobs with their pods must fit into a small container. To read another field of a pod, add it here; the
scenarios of tests/plan use the same transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern

from msgspec.structs import force_setattr, replace

from tarragon.frameworks.dialect_detection import recorded_generation, with_applied_version_only
from tarragon.frameworks.owned_objects import MOUNTED_ANNOTATION
from tarragon.job.eviction_notice import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Service,
    ServiceSpec,
)
from tarragon.kube.meta import RAW_NULL, CustomObject, Json, ObjectMeta, OwnerReference
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, SHARE_ANNOTATIONS, VGPU_ANNOTATION
from tarragon.kube.scheduling.hami import HAMI_GPUS_ANNOTATION
from tarragon.plan.objects.gang_round import ROUND_ANNOTATION
from tarragon.plan.objects.gpu_anchors import CLOSING_ANNOTATION
from tarragon.plan.objects.placement import REQUIRED

Amounts = dict[str, str | int | float]

_INDEX_LABELS = frozenset({"training.kubeflow.org/replica-index", "replica-index", "tf-replica-index", "task_index"})
"""Labels that differ between Tarragon's pods of one replica type. They are dropped, so that the rest can be shared."""
_HEALTHY_CONDITIONS = frozenset({"Initialized", "Ready", "ContainersReady", "PodScheduled"})
"""Pod conditions that are dropped while they are True."""
_BEFORE_START = frozenset({"PodReadyToStartContainers", "PodHasNetwork"})
"""Pod conditions that, while they are True, are dropped once the pod runs."""

_KEPT_ANNOTATIONS = (
    ROUND_ANNOTATION,
    EVICTION_TIME_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
    MOUNTED_ANNOTATION,
    VGPU_ANNOTATION,
    GPU_UUID_ANNOTATION,
    HAMI_GPUS_ANNOTATION,
    CLOSING_ANNOTATION,
    *sorted(SHARE_ANNOTATIONS),
)

# Shared empty values: one per pod would take more memory than the rest of a healthy pod.
_EMPTY_MAP: dict[str, str] = {}
_NO_FINALIZERS: list[str] = []
_NO_CONDITIONS: list[PodCondition] = []
_NO_STATUSES: list[ContainerStatus] = []
_RUNNING = ContainerState(running=ContainerStateRunning())
_NO_LAST_STATE = ContainerState()
_NO_SERVICE_SPEC = ServiceSpec()


class CachedPod(Pod, frozen=True):
    """A pod without its containers' commands and most annotations. Labels stay because pod affinity selects by them."""

    def __post_init__(self) -> None:
        force_setattr(self, "metadata", _metadata(self.metadata, _labels(self.metadata)))
        force_setattr(self, "spec", _pod_spec(encode(_strip_spec(self.spec))))
        force_setattr(self, "status", _pod_status(self.status, self.spec))


class CachedService(Service, frozen=True):
    """A service reduced to its metadata."""

    def __post_init__(self) -> None:
        force_setattr(self, "metadata", _metadata(self.metadata, _EMPTY_MAP))
        force_setattr(self, "spec", _NO_SERVICE_SPEC)


class CachedJob(CustomObject, frozen=True):
    """A job. Once its generation is on record, its managed fields are dropped, and its last-applied configuration but
    for the version.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        metadata = self.metadata
        if recorded_generation(self) is not None:
            annotations = with_applied_version_only(metadata.annotations)
            force_setattr(self, "metadata", replace(metadata, annotations=annotations, raw_managed_fields=RAW_NULL))


def _metadata(metadata: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        deletion_grace_period_seconds=metadata.deletion_grace_period_seconds,
        labels=labels,
        annotations=_annotations(metadata),
        finalizers=_NO_FINALIZERS,
        owner_references=_owners(encode(metadata.owner_references)),
    )


def _labels(metadata: ObjectMeta) -> dict[str, str]:
    labels = tuple((name, value) for name, value in metadata.labels.items() if name not in _INDEX_LABELS)
    return _interned(labels) if labels else _EMPTY_MAP


@lru_cache(maxsize=4096)
def _interned(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {intern(name): intern(value) for name, value in labels}


def _annotations(metadata: ObjectMeta) -> dict[str, str]:
    """The annotations that Tarragon writes, and that in which HAMi writes a pod's GPUs."""
    annotations = {
        name: intern(metadata.annotations[name]) for name in _KEPT_ANNOTATIONS if name in metadata.annotations
    }
    return annotations or _EMPTY_MAP


@lru_cache(maxsize=4096)
def _owners(encoded: bytes) -> list[OwnerReference]:
    """Cached, because a job's pods have equal owners and follow one another in a list."""
    return decode(encoded, list[OwnerReference])


def _strip_spec(spec: PodSpec) -> PodSpec:
    """The spec without scheduling constraints that no longer matter once the pod exists."""
    return replace(
        spec,
        containers=[_strip_container(container) for container in spec.containers],
        init_containers=[_strip_container(container) for container in spec.init_containers],
        node_selector={},
        # Before binding, affinity names the pod's node; afterwards, only its anti-affinity matters.
        affinity=_required_anti_affinity(spec.affinity) if spec.node_name else spec.affinity,
        tolerations=[],
        topology_spread_constraints=None,
    )


def _required_anti_affinity(affinity: Json) -> Json:
    anti_affinity = affinity.get("podAntiAffinity") if isinstance(affinity, dict) else None
    required = anti_affinity.get(REQUIRED) if isinstance(anti_affinity, dict) else None
    return {"podAntiAffinity": {REQUIRED: required}} if required else None


def _strip_container(container: Container) -> Container:
    return Container(
        name=container.name,
        restart_policy=container.restart_policy,
        resources=container.resources,
        ports=[port for port in container.ports if port.host_port],
    )


@lru_cache(maxsize=4096)
def _pod_spec(encoded: bytes) -> PodSpec:
    return decode(encoded, PodSpec)


def _pod_status(status: PodStatus, spec: PodSpec) -> PodStatus:
    requests = {each.name: each.resources.requests for each in (*spec.containers, *spec.init_containers)}
    is_pod_level = bool(spec.resources.requests)
    return PodStatus(
        phase=intern(status.phase),
        reason=status.reason,
        message=status.message,
        nominated_node_name=intern(status.nominated_node_name),
        conditions=[each for each in status.conditions if _is_relevant(each, status.phase)] or _NO_CONDITIONS,
        container_statuses=[_container_status(each, requests) for each in status.container_statuses] or _NO_STATUSES,
        init_container_statuses=[_container_status(each, requests) for each in status.init_container_statuses]
        or _NO_STATUSES,
        resources=status.resources if is_pod_level else None,
        allocated_resources=status.allocated_resources if is_pod_level else None,
    )


def _is_relevant(condition: PodCondition, phase: str) -> bool:
    if condition.status != "True":
        return True
    return phase == "Pending" if condition.type in _BEFORE_START else condition.type not in _HEALTHY_CONDITIONS


def _container_status(status: ContainerStatus, requests: Mapping[str, Amounts]) -> ContainerStatus:
    """The status, without resources that are those of the spec: they differ only during an in-place resize."""
    requested = requests.get(status.name, {})
    reported = status.resources.requests if status.resources is not None else requested
    return ContainerStatus(
        name=intern(status.name),
        ready=status.ready,
        started=status.started,
        restart_count=status.restart_count,
        image_id=intern(status.image_id),
        state=_RUNNING if status.state.running is not None and status.ready else status.state,
        last_state=status.last_state if status.last_state.terminated is not None else _NO_LAST_STATE,
        resources=ResourceRequirements(requests=reported) if reported != requested else None,
        allocated_resources=status.allocated_resources if status.allocated_resources != requested else None,
    )
