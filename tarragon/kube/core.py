"""Partial types of pods, nodes, services and other core kinds, with the fields that Tarragon reads."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from tarragon.kube.meta import Key, ObjectMeta, PartialObject, PartialObjectMetadata, Resource


class ResourceRequirements(PartialObject, frozen=True):
    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class ContainerPort(PartialObject, frozen=True):
    container_port: int = 0
    name: str = ""
    host_port: int = 0
    protocol: str = "TCP"


class Container(PartialObject, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []

    @property
    def is_sidecar(self) -> bool:
        """Whether this is an init container that keeps running beside the others (Kubernetes 1.28)."""
        return self.restart_policy == "Always"


class Toleration(PartialObject, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NamedEntry(PartialObject, frozen=True):
    """A scheduling gate or a resource claim of a pod, without what it refers to."""

    name: str = ""


class PodSchedulingGroup(PartialObject, frozen=True):
    pod_group_name: str = ""


class PodSpec(PartialObject, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    restart_policy: str = "Always"
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    affinity: Any = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: Any = None
    overhead: dict[str, str | int | float] = {}
    resources: ResourceRequirements = ResourceRequirements()
    scheduling_gates: list[NamedEntry] = []
    resource_claims: list[NamedEntry] = []
    scheduling_group: PodSchedulingGroup | None = None
    priority: int | None = None
    priority_class_name: str = ""


class ContainerStateTerminated(PartialObject, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None


class ContainerStateWaiting(PartialObject, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(PartialObject, frozen=True):
    started_at: dt.datetime | None = None


class ContainerState(PartialObject, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(PartialObject, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    """What the container runs with, which differs from the spec during an in-place resize."""
    allocated_resources: dict[str, str | int | float] | None = None


class PodCondition(PartialObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: dt.datetime | None = None


class PodStatus(PartialObject, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    nominated_node_name: str = ""
    start_time: dt.datetime | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] | None = None


class Pod(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Whether the pod has terminated and no longer uses resources."""
        return self.status.phase in {"Succeeded", "Failed"}

    def container_status(self, name: str) -> ContainerStatus | None:
        return next((status for status in self.status.container_statuses if status.name == name), None)

    def condition(self, kind: str) -> PodCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == kind), None)


class Taint(PartialObject, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(PartialObject, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(PartialObject, frozen=True):
    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: list[PodCondition] = []


class Node(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)

    @property
    def ready_since(self) -> dt.datetime | None:
        """When `is_ready` last changed; None if that is unknown."""
        times = (each.last_transition_time for each in self.status.conditions if each.type == "Ready")
        return next(times, None)


class ServicePort(PartialObject, frozen=True):
    name: str = ""
    port: int = 0
    target_port: int | str | None = None


class ServiceSpec(PartialObject, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[ServicePort] = []
    selector: dict[str, str] = {}

    @property
    def is_headless(self) -> bool:
        """Whether the Service's name leads to its pods instead of to an address of its own."""
        return self.cluster_ip == "None"


class Service(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class MinimalMeta(PartialObject, frozen=True):
    """Minimal metadata, for kinds with many objects."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class PersistentVolumeClaimSpec(PartialObject, frozen=True):
    storage_class_name: str = ""
    volume_name: str = ""
    access_modes: list[str] = []
    resources: ResourceRequirements = ResourceRequirements()


class PersistentVolumeClaimStatus(PartialObject, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def is_bound(self) -> bool:
        return self.status.phase == "Bound"


class VolumeNodeAffinity(PartialObject, frozen=True):
    required: Any = None


class PersistentVolumeSpec(PartialObject, frozen=True):
    storage_class_name: str = ""
    access_modes: list[str] = []
    capacity: dict[str, str | int | float] = {}
    claim_ref: MinimalMeta | None = None
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class StorageClass(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[Any] = []


class PriorityClass(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


PODS = Resource(group="", version="v1", plural="pods", kind="Pod", model=Pod)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", model=Node, namespaced=False)
SERVICES = Resource(group="", version="v1", plural="services", kind="Service", model=Service)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", model=PartialObjectMetadata)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", model=PartialObjectMetadata)
EVENTS = Resource(group="", version="v1", plural="events", kind="Event", model=PartialObjectMetadata)
NAMESPACES = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", model=PartialObjectMetadata, namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", model=PartialObjectMetadata
)
PERSISTENT_VOLUMES = Resource(
    group="",
    version="v1",
    plural="persistentvolumes",
    kind="PersistentVolume",
    model=PersistentVolume,
    namespaced=False,
)
STORAGE_CLASSES = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    model=StorageClass,
    namespaced=False,
)
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    model=PriorityClass,
    namespaced=False,
)
SERVICE_ACCOUNTS = Resource(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", model=PartialObjectMetadata
)
ENDPOINTS = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", model=PartialObjectMetadata)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    model=PartialObjectMetadata,
    namespaced=False,
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", model=PartialObjectMetadata)
