"""Builds the services and pods that a job should have, as complete request bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tarragon.frameworks.owned_objects import MOUNTED_ANNOTATION, OWNED_OBJECT_LABEL, OwnedObject, Upkeep
from tarragon.frameworks.plugin import Dialect, DiscoveryConfig, Framework, GangSize, JobService
from tarragon.job.annotations import restarts_as_gang
from tarragon.job.eviction_notice import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION
from tarragon.job.model import ADOPT_ANNOTATION, OWN_MANAGED_BY, Replica, ReplicaSpec, RestartPolicy, TrainingJob
from tarragon.job.places import node_of, vgpu_of
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.pod_validation import main_container
from tarragon.kube.scheduling.cpu_peers import CPU_PEERS_ANNOTATION, sets_cpus
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, VGPU_ANNOTATION
from tarragon.plan.nodes.storage import VolumeCache, needs_kube_scheduler
from tarragon.plan.objects import logs
from tarragon.plan.objects.accelerators import with_accelerators
from tarragon.plan.objects.deliveries import build_delivery
from tarragon.plan.objects.gang_round import ROUND_ANNOTATION
from tarragon.plan.objects.hami_pods import with_hami_gpus
from tarragon.plan.objects.logs import LogFormat, LogSource
from tarragon.plan.objects.placement import Placement, with_node_affinity, with_node_name
from tarragon.plan.objects.podgroup_kinds import pod_group_kind, with_pod_group
from tarragon.plan.objects.progress import AUTHORITY_ANNOTATION, report_path, with_progress_reports
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.objects.vgpus import ChosenGpus, GpuLookup, GpuWait, SharedGpu, gpu_demand, with_vgpu

TCP = "TCP"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlueprint:
    """Everything that is needed to build the objects of one job."""

    framework: Framework
    dialect: Dialect
    job: TrainingJob
    size: GangSize
    settings: OperatorSettings
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    """The assigned place of each replica; kube-scheduler places replicas without one."""
    find_gpus: GpuLookup = lambda _: None
    storage: VolumeCache = field(default_factory=VolumeCache)
    has_gated_pods: bool = False
    """Whether pods of the job get scheduling gates that are not in its templates: kube-scheduler has to bind them."""
    gang_round: int = 0
    """The gang round: how often the gang was restarted. Each pod is annotated with it."""

    @property
    def port_name(self) -> str:
        return self.dialect.port_name or self.framework.port_name

    @property
    def logs_json(self) -> bool:
        """Whether the job's replicas log JSON."""
        default = LogFormat.TEXT if self.framework.has_plain_pods else self.settings.log_format
        return logs.logs_json(self.job, default)


def services(plan: JobBlueprint) -> Iterator[tuple[str, Replica | JobService]]:
    """Yield the names of all services: that of the job, and those of all replicas that may ever resolve each other."""
    of_job = plan.dialect.job_service(plan.job)
    if of_job is not None:
        yield of_job.name, of_job
    size = plan.framework.service_size(plan.job, plan.size)
    for replica in in_start_order(plan.framework, plan.job, plan.job.replicas_of_size(size)):
        yield plan.dialect.names.service(plan.job, replica), replica


def build_services(plan: JobBlueprint, wanted: Iterable[Replica | JobService]) -> Iterator[JsonObject]:
    """Yield the services. They publish addresses of pods that are not ready: replicas wait for each other."""
    for each in wanted:
        if isinstance(each, JobService):
            yield _service(plan, each.name, each.selector, ports=[])
            continue
        group = plan.job.replica_spec(each.type)
        if group is not None:
            labels = plan.dialect.labels(plan.job, each)
            yield _service(plan, plan.dialect.names.service(plan.job, each), labels, _service_ports(plan, group))


def log_config_maps(plan: JobBlueprint) -> Iterator[OwnedObject]:
    """Yield the ConfigMap with the log scripts if the job logs JSON. The pods run without it."""
    if plan.logs_json:
        yield logs.config_map(plan.job)


def build_owned_object(plan: JobBlueprint, wanted: OwnedObject) -> JsonObject:
    """Return the body of a create: with the owner, and with the labels of all objects of the job."""
    metadata = wanted.body["metadata"]
    watched = {OWNED_OBJECT_LABEL: "true"} if wanted.upkeep is Upkeep.KEEP_CURRENT else {}
    labels = plan.dialect.selector(plan.job) | metadata.get("labels", {}) | watched
    return {
        "apiVersion": wanted.resource.api_version,
        "kind": wanted.resource.kind,
        **wanted.body,
        "metadata": build_metadata(plan, metadata["name"], labels, metadata.get("annotations", {})),
    }


def build_pods(plan: JobBlueprint, replicas: Iterable[Replica]) -> Iterator[JsonObject]:
    """Yield the pods of these replicas only: of ten thousand pods, one may be missing."""
    wire = plan.dialect.discovery_config(plan.job, plan.size, plan.settings.cluster_domain)
    kind = pod_group_kind(plan.job, plan.settings.pod_groups, plan.settings.scheduler_name)
    for replica in replicas:
        group = plan.job.replica_spec(replica.type)
        if group is not None:
            body = _pod(plan, replica, group, wire)
            yield body if kind is None else with_pod_group(body, kind, plan.job, replica)


def in_start_order(framework: Framework, job: TrainingJob, replicas: Iterable[Replica]) -> Iterator[Replica]:
    """Yield the replicas in start order: types that others wait for come first."""
    order = {kind: position for position, kind in enumerate(framework.start_order)}
    rest = {group.type: len(order) + position for position, group in enumerate(job.replica_specs)}
    yield from sorted(replicas, key=lambda replica: (order.get(replica.type, rest[replica.type]), replica.index))


def is_managed_by_tarragon(job: TrainingJob) -> bool:
    """Whether managedBy leaves the job to Tarragon."""
    return job.run_policy.managed_by in OWN_MANAGED_BY


def is_placed_by(job: TrainingJob, scheduler: str) -> bool:
    """Whether the scheduler places the job, because no template names another one. Such a job waits for admission."""
    return all(
        group.template.get("spec", {}).get("schedulerName", scheduler) == scheduler
        for group in job.replica_specs
        if group.replicas
    )


def _service(plan: JobBlueprint, name: str, selector: Mapping[str, str], ports: list[Json]) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(plan, name, selector, {}),
        "spec": {
            **({} if plan.dialect.has_cluster_ips else {"clusterIP": "None"}),
            "publishNotReadyAddresses": True,
            "selector": dict(selector),
            **({"ports": ports} if ports else {}),
        },
    }


def _service_ports(plan: JobBlueprint, group: ReplicaSpec) -> list[Json]:
    """Return the replica's own port first, then all other named ports of its main container."""
    container = main_container(group.template, plan.framework.main_container) or {}
    own = plan.port_name
    ports: dict[tuple[int, str], JsonObject] = {(group.port, TCP): {"name": own, "port": group.port}}
    for port in container.get("ports", []):
        number, protocol = port["containerPort"], port.get("protocol", TCP)
        if port.get("name") and port["name"] != own:
            ports.setdefault((number, protocol), {"name": port["name"], "port": number, "protocol": protocol})
    return list(ports.values())


def _pod(
    plan: JobBlueprint, replica: Replica, group: ReplicaSpec, wire: Callable[[Replica], DiscoveryConfig | None]
) -> JsonObject:
    name = plan.dialect.names.pod(plan.job, replica)
    place = plan.nodes.get(replica)
    gpus = None if place is None else _find_gpus(plan, group, name, place)
    spec = _placed(plan, group, None if place is None else node_of(place), gpus)
    template_metadata = group.template.get("metadata", {})
    labels = pod_labels(plan.framework, plan.dialect, plan.job, replica)
    spec["restartPolicy"] = _restart_policy(plan.job, replica, group)
    if spec.get("initContainers"):
        spec["initContainers"] = [_with_termination_message(container) for container in spec["initContainers"]]
    wiring = wire(replica)
    spec["containers"] = _containers(plan, group, wiring)
    if wiring is not None:
        spec = _with_pod_wiring(spec, wiring, plan.settings)
    equipped_spec = with_accelerators(spec, plan.framework.main_container, plan.settings.accelerators)
    annotations = _annotations(plan, template_metadata.get("annotations", {}))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": build_metadata(plan, name, labels, annotations),
        "spec": _with_json_logs(plan, equipped_spec, LogSource(job=plan.job, replica=replica, pod=name)),
    }
    return _with_progress_reports(plan, body if place is None else _with_gpus(plan, body, place, gpus))


_Gpus = SharedGpu | ChosenGpus | GpuWait | None


def _find_gpus(plan: JobBlueprint, group: ReplicaSpec, pod: str, place: str) -> _Gpus:
    demand = gpu_demand(Key(plan.job.key.namespace, pod), place, group.template.get("spec", {}))
    return None if demand is None else plan.find_gpus(demand)


def _with_gpus(plan: JobBlueprint, body: JsonObject, place: str, gpus: _Gpus) -> JsonObject:
    number = vgpu_of(place)
    if isinstance(gpus, ChosenGpus):
        return with_hami_gpus(body, number, gpus, plan.framework.main_container)
    return body if number is None else with_vgpu(body, number, gpus if isinstance(gpus, SharedGpu) else None)


def _with_progress_reports(plan: JobBlueprint, body: JsonObject) -> JsonObject:
    endpoint = plan.settings.progress
    if endpoint is None or plan.framework.has_plain_pods:
        return body
    url = endpoint.url + report_path(plan.framework.resource, plan.job.key)
    return with_progress_reports(body, url, endpoint)


def pod_labels(framework: Framework, dialect: Dialect, job: TrainingJob, replica: Replica) -> dict[str, str]:
    """Return the template's labels and ours.

    Pods of an adopted job have the labels of all API generations, as its existing Services select by any of them.
    """
    group = job.replica_spec(replica.type)
    template_labels = {} if group is None else group.template.get("metadata", {}).get("labels", {})
    if job.annotations.get(ADOPT_ANNOTATION) != "true":
        return {**template_labels, **dialect.labels(job, replica)}
    dialects = (other for other in framework.dialects if other.names is dialect.names)
    all_labels = {name: value for other in dialects for name, value in other.labels(job, replica).items()}
    return {**template_labels, **all_labels, **dialect.labels(job, replica)}


_OWN_ANNOTATIONS = frozenset(
    {
        ROUND_ANNOTATION,
        EVICTION_TIME_ANNOTATION,
        CHECKPOINT_REQUEST_ANNOTATION,
        MOUNTED_ANNOTATION,
        AUTHORITY_ANNOTATION,
        VGPU_ANNOTATION,
        GPU_UUID_ANNOTATION,
        CPU_PEERS_ANNOTATION,
    }
)


def _annotations(plan: JobBlueprint, template_annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's annotations without our own, which a template that was copied from a pod may contain."""
    annotations = {name: value for name, value in template_annotations.items() if name not in _OWN_ANNOTATIONS}
    if plan.gang_round:
        annotations[ROUND_ANNOTATION] = str(plan.gang_round)
    if plan.settings.shares_cores and (peers := _cpu_peers(plan)):
        annotations[CPU_PEERS_ANNOTATION] = str(peers)
    return annotations


def _cpu_peers(plan: JobBlueprint) -> int:
    """Return how many programs the replicas run that set no CPUs."""
    return sum(
        plan.size.get(group.type, 0) * plan.framework.programs_per_replica(plan.job, group.type)
        for group in plan.job.replica_specs
        if not sets_cpus(
            container.get("resources", {}) for container in group.template.get("spec", {}).get("containers", [])
        )
    )


def _placed(plan: JobBlueprint, group: ReplicaSpec, node: str | None, gpus: _Gpus) -> dict[str, Json]:
    spec = group.template.get("spec", {})
    if spec.get("hostNetwork") and not plan.framework.has_plain_pods:
        # Without this, the pod would use its node's resolver, which does not know the other replicas.
        spec = {"dnsPolicy": "ClusterFirstWithHostNet", **spec}
    must_be_bound = (
        isinstance(gpus, ChosenGpus)
        or plan.has_gated_pods
        or needs_kube_scheduler(group.template, plan.job.key.namespace, plan.storage)
    )
    if node is not None and plan.settings.placement is Placement.DIRECT and not must_be_bound:
        return dict(with_node_name(spec, node))
    placed = dict(spec if node is None else with_node_affinity(_without_node_name(spec), node))
    if placed.get("schedulerName") == plan.settings.scheduler_name:
        # The default scheduler binds this pod: no scheduler of our name exists for single pods.
        del placed["schedulerName"]
    return placed


def _without_node_name(spec: JsonObject) -> JsonObject:
    """Return the spec for kube-scheduler, which neither binds a pod that names its node nor that pod's claims."""
    return {name: value for name, value in spec.items() if name != "nodeName"}


def _restart_policy(job: TrainingJob, replica: Replica, group: ReplicaSpec) -> str:
    """Return the pods' restartPolicy: Never where the exit code decides or the gang restarts together.

    The operator must see the end of these pods; in-place restarts by the kubelet would hide it.
    """
    is_exit_code_policy = job.restart_policy_of(replica) is RestartPolicy.EXIT_CODE
    return RestartPolicy.NEVER.value if is_exit_code_policy or restarts_as_gang(job) else group.pod_restart_policy


def _containers(plan: JobBlueprint, group: ReplicaSpec, wiring: DiscoveryConfig | None) -> list[JsonObject]:
    containers: list[JsonObject] = group.template.get("spec", {}).get("containers", [])
    main = main_container(group.template, plan.framework.main_container)
    with_ports = (_with_port(container, plan, group) if container is main else container for container in containers)
    return [_wired(_with_termination_message(container), wiring) for container in with_ports]


def _with_json_logs(plan: JobBlueprint, spec: JsonObject, speaker: LogSource) -> JsonObject:
    main = main_container({"spec": spec}, plan.framework.main_container)
    if main is None or not plan.logs_json:
        return spec
    return logs.with_json_logs(spec, main["name"], speaker)


def _with_termination_message(container: JsonObject) -> JsonObject:
    """Return the container with its last log lines as termination message, so that failures can be explained."""
    return {"terminationMessagePolicy": "FallbackToLogsOnError", **container}


def _with_port(container: JsonObject, plan: JobBlueprint, group: ReplicaSpec) -> JsonObject:
    ports = container.get("ports", [])
    if not plan.port_name or any(port.get("name") == plan.port_name for port in ports):
        return container
    return {**container, "ports": [*ports, {"name": plan.port_name, "containerPort": group.port}]}


def _with_pod_wiring(spec: JsonObject, wiring: DiscoveryConfig, settings: OperatorSettings) -> dict[str, Json]:
    """Return the pod spec with the framework's volumes, init containers and fields."""
    replaced = {volume["name"] for volume in wiring.volumes}
    users = [volume for volume in spec.get("volumes", []) if volume.get("name") not in replaced]
    volumes = {"volumes": [*users, *wiring.volumes]} if wiring.volumes else {}
    first = [_with_termination_message(build_delivery(delivery, settings)) for delivery in wiring.deliveries]
    init_containers = {"initContainers": [*first, *spec.get("initContainers", [])]} if first else {}
    return {**spec, **volumes, **init_containers, **wiring.pod_fields}


def _wired(container: JsonObject, wiring: DiscoveryConfig | None) -> JsonObject:
    """Return the container with the framework's command, variables and mounts.

    Our variables come first, so that the user's may refer to them, and replace the user's of the same name.
    """
    if wiring is None or wiring.container not in {"", container.get("name")}:
        return container
    if wiring.command:
        # Arguments without a command are those of the image's own program.
        others = {name: value for name, value in container.items() if name != "args"}
        container = {**others, "command": list(wiring.command)}
    users = [variable for variable in container.get("env", []) if variable.get("name") not in wiring.env]
    set_by_user = {variable.get("name") for variable in users}
    env = {**{name: value for name, value in wiring.default_env.items() if name not in set_by_user}, **wiring.env}
    wired = {**container, "env": [*({"name": name, "value": value} for name, value in env.items()), *users]}
    if not wiring.volume_mounts:
        return wired
    taken = {mount["mountPath"] for mount in wiring.volume_mounts}
    mounts = [mount for mount in container.get("volumeMounts", []) if mount.get("mountPath") not in taken]
    return {**wired, "volumeMounts": [*mounts, *wiring.volume_mounts]}


def build_metadata(
    plan: JobBlueprint, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> JsonObject:
    job = plan.job
    owner = {
        "apiVersion": plan.framework.resource.api_version,
        "kind": job.kind,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: dict[str, Json] = {
        "name": name,
        "namespace": job.key.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner],
    }
    return {**metadata, "annotations": dict(annotations)} if annotations else metadata
