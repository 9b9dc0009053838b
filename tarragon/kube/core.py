"""Partial types of pods, nodes, services and other core kinds, with the fields that Tarragon reads."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from tarragon.kube.meta import AnyObject, Key, ObjectMeta, Resource, Struct


class ResourceRequirements(Struct, frozen=True):
    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class ContainerPort(Struct, frozen=True):
    container_port: int = 0
    name: str = ""
    host_port: int = 0
    protocol: str = "TCP"


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []


class Toleration(Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(Struct, frozen=True):
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
    priority: int | None = None
    priority_class_name: str = ""


class Terminated(Struct, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None


class Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Running(Struct, frozen=True):
    started_at: dt.datetime | None = None


class ContainerState(Struct, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: dt.datetime | None = None


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    nominated_node_name: str = ""
    start_time: dt.datetime | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Struct, frozen=True):
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


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Struct, frozen=True):
    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: list[PodCondition] = []


class Node(Struct, frozen=True):
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


class ServicePort(Struct, frozen=True):
    name: str = ""
    port: int = 0
    target_port: int | str | None = None


class ServiceSpec(Struct, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[ServicePort] = []
    selector: dict[str, str] = {}


class Service(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class SlimMeta(Struct, frozen=True):
    """Minimal metadata, for kinds with many objects."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class ClaimSpec(Struct, frozen=True):
    storage_class_name: str = ""
    volume_name: str = ""
    access_modes: list[str] = []
    resources: ResourceRequirements = ResourceRequirements()


class ClaimStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    metadata: SlimMeta = SlimMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def is_bound(self) -> bool:
        return self.status.phase == "Bound"


class VolumeNodeAffinity(Struct, frozen=True):
    required: Any = None


class VolumeSpec(Struct, frozen=True):
    storage_class_name: str = ""
    access_modes: list[str] = []
    capacity: dict[str, str | int | float] = {}
    claim_ref: SlimMeta | None = None
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Struct, frozen=True):
    metadata: SlimMeta = SlimMeta()
    spec: VolumeSpec = VolumeSpec()
    status: ClaimStatus = ClaimStatus()


class StorageClass(Struct, frozen=True):
    metadata: SlimMeta = SlimMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[Any] = []


class PriorityClass(Struct, frozen=True):
    metadata: SlimMeta = SlimMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


PODS = Resource(group="", version="v1", plural="pods", kind="Pod", model=Pod)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", model=Node, namespaced=False)
SERVICES = Resource(group="", version="v1", plural="services", kind="Service", model=Service)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", model=AnyObject)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", model=AnyObject)
EVENTS = Resource(group="", version="v1", plural="events", kind="Event", model=AnyObject)
NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", model=AnyObject, namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", model=AnyObject
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
SERVICE_ACCOUNTS = Resource(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", model=AnyObject)
ENDPOINTS = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", model=AnyObject)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    model=AnyObject,
    namespaced=False,
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", model=AnyObject)
