"""The pod fields that the kubelet reads: more than `kube.core`, as the kubelet has to act on them."""

from __future__ import annotations

from typing import Any

from msgspec import field

from tarragon.kube.core import PODS, ContainerPort, ResourceRequirements
from tarragon.kube.meta import ObjectMeta, PartialObject


class ObjectFieldSelector(PartialObject, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(PartialObject, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = 0


class KeySelector(PartialObject, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvVarSource(PartialObject, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(PartialObject, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ObjectSelector(PartialObject, frozen=True):
    """A whole ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFrom(PartialObject, frozen=True):
    prefix: str = ""
    config_map_ref: ObjectSelector | None = None
    secret_ref: ObjectSelector | None = None


class VolumeMount(PartialObject, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class Header(PartialObject, frozen=True):
    name: str = ""
    value: str = ""


class ExecAction(PartialObject, frozen=True):
    command: list[str] = []


class HttpGetAction(PartialObject, frozen=True):
    """`port` is a number or the name of a container port; an empty `host` is the pod's own."""

    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: list[Header] = []


class TcpSocketAction(PartialObject, frozen=True):
    port: int | str = 0
    host: str = ""


class GrpcAction(PartialObject, frozen=True):
    port: int = 0


class SleepAction(PartialObject, frozen=True):
    seconds: int = 0


class Handler(PartialObject, frozen=True):
    """The action of a probe or lifecycle hook: exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    grpc: GrpcAction | None = None
    sleep: SleepAction | None = None


class Probe(Handler, frozen=True):
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(PartialObject, frozen=True):
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    stop_signal: str = ""


class ReadinessGate(PartialObject, frozen=True):
    condition_type: str = ""


class Container(PartialObject, frozen=True):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    env_from: list[EnvFrom] = []
    working_dir: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    volume_mounts: list[VolumeMount] = []
    volume_devices: list[Any] = []
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    ports: list[ContainerPort] = []
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: dict[str, Any] = {}

    @property
    def post_start(self) -> Handler | None:
        return self.lifecycle.post_start if self.lifecycle else None

    @property
    def pre_stop(self) -> Handler | None:
        return self.lifecycle.pre_stop if self.lifecycle else None

    @property
    def is_sidecar(self) -> bool:
        """Whether this init container keeps running beside the later containers until the pod ends."""
        return self.restart_policy == "Always"


class PodSpec(PartialObject, frozen=True):
    node_name: str = ""
    restart_policy: str = "Always"
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[dict[str, Any]] = []
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    service_account_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    readiness_gates: list[ReadinessGate] = []
    security_context: dict[str, Any] = {}
    dns_config: dict[str, Any] = {}
    host_aliases: list[Any] = []
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    share_process_namespace: bool = False
    runtime_class_name: str = ""
    enable_service_links: bool = True
    node_selector: dict[str, str] = {}
    overhead: dict[str, str | int | float] = {}
    resources: ResourceRequirements = ResourceRequirements()

    @property
    def grace_seconds(self) -> int:
        return 30 if self.termination_grace_period_seconds is None else self.termination_grace_period_seconds

    @property
    def all_containers(self) -> list[Container]:
        return [*self.init_containers, *self.containers]


class Pod(PartialObject, frozen=True):
    """`status` is the complete object: the kubelet changes its own fields and keeps the others."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: dict[str, Any] = {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")

    @property
    def is_finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def grace_seconds(self) -> int:
        """The grace period in effect: that of the deletion, else that of the spec."""
        deletion = self.metadata.deletion_grace_period_seconds
        return self.spec.grace_seconds if deletion is None else deletion


KUBELET_PODS = PODS.with_model(Pod)
