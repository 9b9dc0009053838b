"""Computes a pod's status from the state of its containers. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarragon.kube.codec import format_time
from tarragon.localcluster.kubelet.base import pod_lifecycle
from tarragon.localcluster.kubelet.base.downward import LOOPBACK
from tarragon.localcluster.kubelet.base.pod_lifecycle import DesiredState, ExitStatus, RuntimeStatus, RuntimeStatuses
from tarragon.localcluster.kubelet.base.spec import Container, Pod

EPOCH = "1970-01-01T00:00:00Z"
"""What a container runtime reports as the start time of a container that never started."""

_FINAL = frozenset({"Succeeded", "Failed"})
_ORDER = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """Why the node has ended or rejected the whole pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """The facts behind a pod's status: its containers' state, its course, since when it is on the node, its addresses.

    An empty `address` is left out of the status: Kubernetes' controllers reject loopback addresses as endpoints.
    `environments` are the folders that the images map to, by container.
    """

    statuses: RuntimeStatuses
    course: DesiredState
    verdict: PodFailure | None
    started: dt.datetime
    host: str = LOOPBACK
    address: str = LOOPBACK
    environments: Mapping[str, str] = field(default_factory=dict)


def pod_status(pod: Pod, facts: StatusFacts, now: dt.datetime) -> Json:
    """The status fields that the kubelet owns. Other components' conditions are kept; the phase never goes back."""
    phase = _phase(pod, facts)
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, facts, phase, now),
        "hostIP": facts.host,
        "startTime": format_time(facts.started),
        "containerStatuses": [_container(pod, each, facts) for each in pod.spec.containers],
    }
    if facts.address:
        status |= {"podIP": facts.address, "podIPs": [{"ip": facts.address}]}
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_container(pod, each, facts) for each in pod.spec.init_containers]
    if facts.verdict:
        status |= {"reason": facts.verdict.reason, "message": facts.verdict.message}
    return status


def _phase(pod: Pod, facts: StatusFacts) -> str:
    if pod.is_finished:
        return pod.phase
    phase = pod_lifecycle.phase(pod.spec, facts.statuses, facts.course)
    if facts.verdict and phase == "Succeeded":
        phase = "Failed"
    return max(pod.phase, phase, key=lambda name: _ORDER.get(name, 0))


# ----------------------------------------------------------------------------------------------------------- conditions


def _conditions(pod: Pod, facts: StatusFacts, phase: str, now: dt.datetime) -> list[Json]:
    stored = {condition.get("type"): condition for condition in pod.status.get("conditions") or []}
    containers_ready = _containers_ready(pod, facts.statuses, phase)
    owned = {
        "PodReadyToStartContainers": ("False" if phase in _FINAL else "True", "", ""),
        "Initialized": _initialized(pod, facts.statuses, phase),
        "Ready": _ready(pod, containers_ready, stored),
        "ContainersReady": containers_ready,
        "PodScheduled": ("True", "", ""),
    }
    if facts.verdict and facts.verdict.reason == "Terminated":
        owned["DisruptionTarget"] = ("True", "TerminationByKubelet", facts.verdict.message)
    conditions = [_condition(kind, value, stored.get(kind), now) for kind, value in owned.items()]
    return conditions + [condition for kind, condition in stored.items() if kind not in owned]


def _condition(kind: str, value: tuple[str, str, str], before: Json | None, now: dt.datetime) -> Json:
    status, reason, message = value
    since = format_time(now)
    if before and before.get("status") == status:
        since = before.get("lastTransitionTime") or since
    condition: Json = {"type": kind, "status": status, "lastTransitionTime": since}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _initialized(pod: Pod, statuses: RuntimeStatuses, phase: str) -> tuple[str, str, str]:
    if phase == "Succeeded":
        return "True", "PodCompleted", ""
    if pending := pod_lifecycle.pending_init_containers(pod.spec, statuses):
        return "False", "ContainersNotInitialized", f"containers with incomplete status: {_listed(pending)}"
    return "True", "", ""


def _containers_ready(pod: Pod, statuses: RuntimeStatuses, phase: str) -> tuple[str, str, str]:
    if phase in _FINAL:
        return "False", "PodCompleted" if phase == "Succeeded" else "PodFailed", ""
    long_running = [*(each for each in pod.spec.init_containers if each.is_sidecar), *pod.spec.containers]
    unready = [each.name for each in long_running if not statuses[each.name].is_ready]
    if unready:
        return "False", "ContainersNotReady", f"containers with unready status: {_listed(unready)}"
    return "True", "", ""


def _ready(pod: Pod, containers: tuple[str, str, str], stored: Mapping[str, Json]) -> tuple[str, str, str]:
    """The Ready condition: all containers are ready, and so are the pod's readiness gates."""
    if containers[0] != "True":
        return containers
    messages = []
    for gate in pod.spec.readiness_gates:
        condition = stored.get(gate.condition_type)
        if condition is None:
            messages.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif (state := condition.get("status")) != "True":
            messages.append(f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {state}')
    return ("False", "ReadinessGatesNotReady", ", ".join(messages)) if messages else ("True", "", "")


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


# ----------------------------------------------------------------------------------------------------------- containers


def _container(pod: Pod, container: Container, facts: StatusFacts) -> Json:
    life = facts.statuses[container.name]
    run = life.run
    state = _state(pod, container, facts)
    last = run if run and run.outcome and "waiting" in state else life.previous
    status: Json = {
        "name": container.name,
        "image": container.image,
        "imageID": facts.environments.get(container.name, ""),
        "restartCount": run.number if run else 0,
        "ready": _is_ready(pod, container, life),
        "started": life.has_started,
        "state": state,
        "lastState": {"terminated": _terminated(last.outcome, last.identity)} if last and last.outcome else {},
    }
    if run:
        status["containerID"] = container_id(run.identity)
    return status


def container_id(identity: str) -> str:
    return f"tarragon://{identity}"


def _is_ready(pod: Pod, container: Container, life: RuntimeStatus) -> bool:
    """The ready flag of a container status: an init container is ready when it has succeeded."""
    if container in pod.spec.init_containers and not container.is_sidecar:
        return life.has_succeeded
    return life.is_ready


def _state(pod: Pod, container: Container, facts: StatusFacts) -> Json:
    life = facts.statuses[container.name]
    run = life.run
    if run is not None and run.is_alive:
        if run.started is not None and life.is_running:
            return {"running": {"startedAt": format_time(run.started)}}
        return {"waiting": {"reason": _default_waiting_reason(pod)}}
    waiting = _waiting(pod, container, facts)
    if run is not None and run.outcome is not None and not waiting:
        return {"terminated": _terminated(run.outcome, run.identity)}
    return {"waiting": waiting or {"reason": _default_waiting_reason(pod)}}


def _waiting(pod: Pod, container: Container, facts: StatusFacts) -> Json | None:
    """The waiting state of a container that failed to start or backs off; None for others."""
    life = facts.statuses[container.name]
    if facts.course is DesiredState.STOP or pod.is_finished:
        return None
    if life.start_failure is not None:
        return {"reason": life.start_failure.reason, "message": life.start_failure.message}
    policy = "Always" if container.is_sidecar else pod.spec.restart_policy
    if life.backoff is None or life.backoff_end() is None or not pod_lifecycle.restarts(policy, life):
        return None
    return {"reason": "CrashLoopBackOff", "message": back_off_message(pod, container.name, life.backoff.delay)}


def _default_waiting_reason(pod: Pod) -> str:
    return "PodInitializing" if pod.spec.init_containers else "ContainerCreating"


def back_off_message(pod: Pod, container: str, delay: float) -> str:
    return f"back-off {_go_duration(delay)} restarting failed container={container} pod={full_name(pod)}"


def full_name(pod: Pod) -> str:
    """The pod's name as the kubelet writes it in messages."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _terminated(outcome: ExitStatus, identity: str) -> Json:
    terminated: Json = {
        "exitCode": outcome.code,
        "reason": outcome.reason,
        "startedAt": format_time(outcome.started) if outcome.started else EPOCH,
        "finishedAt": format_time(outcome.finished),
        "containerID": container_id(identity),
    }
    if outcome.signal:
        terminated["signal"] = outcome.signal
    if outcome.message:
        terminated["message"] = outcome.message
    return terminated


def owned_fields(status: Mapping[str, Any], fields: Iterable[str]) -> Json:
    """The given fields of a stored status, without the nulls that some API servers add."""
    return {name: _without_nulls(status[name]) for name in fields if name in status}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return value
