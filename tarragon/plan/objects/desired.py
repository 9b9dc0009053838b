"""The services and pods that a job should have, as complete bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tarragon.frameworks.plugin import Dialect, Framework, Size, Wiring
from tarragon.job.annotations import restarts_together
from tarragon.job.leaving import CHECKPOINT, LEAVING
from tarragon.job.model import ADOPT_ANNOTATION, Replica, ReplicaGroup, RestartPolicy, TrainingJob
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.podtemplate import main_container
from tarragon.plan.nodes.storage import Storage, waits_for_a_scheduler
from tarragon.plan.objects import logs
from tarragon.plan.objects.accelerators import equipped
from tarragon.plan.objects.generation_label import ROUND_ANNOTATION
from tarragon.plan.objects.logs import Speaker
from tarragon.plan.objects.placement import Placement, by_affinity, directly
from tarragon.plan.objects.podgroup_kinds import kind_for, marked
from tarragon.plan.objects.settings import Settings

TCP = "TCP"

OWN_NAMES = frozenset({"", "kubeflow.org/training-operator", "tarragon.dev/tarragon"})
"""Values of managedBy that leave a job to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything that the bodies of one job's objects are made of."""

    framework: Framework
    dialect: Dialect
    job: TrainingJob
    size: Size
    settings: Settings
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    """Where each replica is to run; without a node, kube-scheduler finds one."""
    storage: Storage = field(default_factory=Storage)
    round: int = 0
    """How often the gang has been made anew; each of its pods bears it."""

    @property
    def port_name(self) -> str:
        return self.dialect.port_name or self.framework.port_name


def service_names(plan: Blueprint) -> Iterator[tuple[str, Replica]]:
    """Of all replicas that may ever ask for each other."""
    size = plan.framework.service_size(plan.job, plan.size)
    for replica in in_start_order(plan.framework, plan.job, plan.job.replicas(size)):
        yield plan.dialect.names.service(plan.job, replica), replica


def services(plan: Blueprint, wanted: Iterable[Replica]) -> Iterator[JsonObject]:
    """Known before their pods are ready: replicas wait for each other's names."""
    for replica in wanted:
        group = plan.job.group(replica.type)
        if group is not None:
            yield _service(plan, replica, group)


def config_maps(plan: Blueprint) -> list[JsonObject]:
    """What the pods can't do without; it is there before them."""
    return [_mounted(plan, body) for body in plan.framework.objects(plan.job)]


def scripts_of_logs(plan: Blueprint) -> Iterator[JsonObject]:
    """What the pods mount if it is there."""
    if logs.are_json(plan.job, plan.settings.logs):
        yield _mounted(plan, logs.config_map(plan.job))


def _mounted(plan: Blueprint, body: JsonObject) -> JsonObject:
    return {**body, "metadata": metadata(plan, body["metadata"]["name"], plan.dialect.selector(plan.job), {})}


def pods(plan: Blueprint, wanted: Iterable[Replica]) -> Iterator[JsonObject]:
    """Bodies for these replicas only: of ten thousand pods, one may be missing."""
    wire = plan.dialect.wire(plan.job, plan.size, plan.settings.cluster_domain)
    kind = kind_for(plan.job, plan.settings.pod_groups)
    for replica in wanted:
        group = plan.job.group(replica.type)
        if group is not None:
            made = _pod(plan, replica, group, wire)
            yield made if kind is None else marked(made, kind, plan.job, replica)


def in_start_order(framework: Framework, job: TrainingJob, replicas: Iterable[Replica]) -> Iterator[Replica]:
    """The types that others wait for first."""
    order = {kind: position for position, kind in enumerate(framework.start_order)}
    rest = {group.type: len(order) + position for position, group in enumerate(job.groups)}
    yield from sorted(replicas, key=lambda replica: (order.get(replica.type, rest[replica.type]), replica.index))


def is_ours(job: TrainingJob) -> bool:
    """Whoever else is named in managedBy looks after the job alone."""
    return job.run_policy.managed_by in OWN_NAMES


def is_placed_by(job: TrainingJob, scheduler: str) -> bool:
    """Whether that scheduler places the job: it names no other one. Then it waits for an admission."""
    return all(
        group.template.get("spec", {}).get("schedulerName", scheduler) == scheduler
        for group in job.groups
        if group.wish
    )


def _service(plan: Blueprint, replica: Replica, group: ReplicaGroup) -> JsonObject:
    labels = plan.dialect.labels(plan.job, replica)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(plan, plan.dialect.names.service(plan.job, replica), labels, {}),
        "spec": {
            **({} if plan.dialect.has_cluster_ips else {"clusterIP": "None"}),
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": _service_ports(plan, group),
        },
    }


def _service_ports(plan: Blueprint, group: ReplicaGroup) -> list[Json]:
    """The replica's own port first, then every other named one of its main container."""
    container = main_container(group.template, plan.framework.main_container) or {}
    own = plan.port_name
    ports: dict[tuple[int, str], JsonObject] = {(group.port, TCP): {"name": own, "port": group.port}}
    for port in container.get("ports", []):
        number, protocol = port["containerPort"], port.get("protocol", TCP)
        if port.get("name") and port["name"] != own:
            ports.setdefault((number, protocol), {"name": port["name"], "port": number, "protocol": protocol})
    return list(ports.values())


def _pod(
    plan: Blueprint, replica: Replica, group: ReplicaGroup, wire: Callable[[Replica], Wiring | None]
) -> JsonObject:
    spec = _placed(plan, group, plan.nodes.get(replica))
    written = group.template.get("metadata", {})
    labels = pod_labels(plan.framework, plan.dialect, plan.job, replica)
    spec["restartPolicy"] = _restart_policy(plan.job, replica, group)
    if spec.get("initContainers"):
        spec["initContainers"] = [_with_last_words(container) for container in spec["initContainers"]]
    spec["containers"] = _containers(plan, group, wire(replica))
    equipment = equipped(spec, plan.framework.main_container, plan.settings.accelerators)
    name = plan.dialect.names.pod(plan.job, replica)
    annotations = _annotations(plan, written.get("annotations", {}))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(plan, name, labels, annotations),
        "spec": _speaking(plan, equipment, Speaker(job=plan.job, replica=replica, pod=name)),
    }


def pod_labels(framework: Framework, dialect: Dialect, job: TrainingJob, replica: Replica) -> dict[str, str]:
    """The template's, and ours: of a job that another operator began, those of all generations, as its Services select
    by whichever it had.
    """
    group = job.group(replica.type)
    written = {} if group is None else group.template.get("metadata", {}).get("labels", {})
    if job.annotations.get(ADOPT_ANNOTATION) != "true":
        return {**written, **dialect.labels(job, replica)}
    alike = (other for other in framework.dialects if other.names is dialect.names)
    of_all = {name: value for other in alike for name, value in other.labels(job, replica).items()}
    return {**written, **of_all, **dialect.labels(job, replica)}


def _annotations(plan: Blueprint, written: Mapping[str, str]) -> dict[str, str]:
    """A template that was copied from a pod has what was noted on that pod."""
    kept = {name: value for name, value in written.items() if name not in {ROUND_ANNOTATION, LEAVING, CHECKPOINT}}
    return {**kept, ROUND_ANNOTATION: str(plan.round)} if plan.round else kept


def _placed(plan: Blueprint, group: ReplicaGroup, node: str | None) -> dict[str, Json]:
    spec = group.template.get("spec", {})
    if spec.get("hostNetwork"):
        # Else it would ask its node's resolver, which has never heard of the other replicas.
        spec = {"dnsPolicy": "ClusterFirstWithHostNet", **spec}
    waits = waits_for_a_scheduler(group.template, plan.job.key.namespace, plan.storage)
    if node is not None and plan.settings.placement is Placement.DIRECT and not waits:
        return dict(directly(spec, node))
    placed = dict(spec if node is None else by_affinity(spec, node))
    if placed.get("schedulerName") == plan.settings.scheduler:
        # Somebody else is to bind it, and no scheduler of that name ever will.
        del placed["schedulerName"]
    return placed


def _restart_policy(job: TrainingJob, replica: Replica, group: ReplicaGroup) -> str:
    """Never where an exit code decides: the pod is to tell of its end. What the kubelet starts again by itself, a gang
    that restarts together would never hear of.
    """
    decides = job.policy_of(replica) is RestartPolicy.EXIT_CODE
    return RestartPolicy.NEVER.value if decides or restarts_together(job) else group.restart_policy_of_pods


def _containers(plan: Blueprint, group: ReplicaGroup, wiring: Wiring | None) -> list[JsonObject]:
    containers: list[JsonObject] = group.template.get("spec", {}).get("containers", [])
    main = main_container(group.template, plan.framework.main_container)
    complete = (_with_port(container, plan, group) if container is main else container for container in containers)
    return [_told(_with_last_words(container), wiring) for container in complete]


def _speaking(plan: Blueprint, spec: JsonObject, speaker: Speaker) -> JsonObject:
    main = main_container({"spec": spec}, plan.framework.main_container)
    if main is None or not logs.are_json(plan.job, plan.settings.logs):
        return spec
    return logs.with_json(spec, main["name"], speaker)


def _with_last_words(container: JsonObject) -> JsonObject:
    """So that a failure is told with its last lines even after the pod is gone."""
    return {"terminationMessagePolicy": "FallbackToLogsOnError", **container}


def _with_port(container: JsonObject, plan: Blueprint, group: ReplicaGroup) -> JsonObject:
    ports = container.get("ports", [])
    if any(port.get("name") == plan.port_name for port in ports):
        return container
    return {**container, "ports": [*ports, {"name": plan.port_name, "containerPort": group.port}]}


def _told(container: JsonObject, wiring: Wiring | None) -> JsonObject:
    """Ours come first, so that the user's own variables may refer to them, and replace those of the same name."""
    if wiring is None or wiring.container not in {"", container.get("name")}:
        return container
    if wiring.command:
        container = {**container, "command": list(wiring.command)}
    kept = [variable for variable in container.get("env", []) if variable.get("name") not in wiring.env]
    return {**container, "env": [*({"name": name, "value": value} for name, value in wiring.env.items()), *kept]}


def metadata(plan: Blueprint, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> JsonObject:
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
