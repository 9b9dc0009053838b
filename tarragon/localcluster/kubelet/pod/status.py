"""A pod's status as the API shows it, from what its containers have done. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarragon.kube.codec import timestamp
from tarragon.localcluster.kubelet.base.downward import HOST
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.probes import pod_lifecycle as lives_of
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Course, Life, Lives, Outcome

EPOCH = "1970-01-01T00:00:00Z"
"""What a runtime reports as the start of what has never started."""

_FINAL = frozenset({"Succeeded", "Failed"})
_ORDER = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the node has ended or refused the whole pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the pod is: what its containers do, where it goes, since when it is on the node, at which address.

    An empty `address` is not told: Kubernetes' controllers refuse loopback addresses as endpoints. `environments` are
    what the images of its containers stand for.
    """

    lives: Lives
    course: Course
    verdict: Verdict | None
    started: dt.datetime
    host: str = HOST
    address: str = HOST
    environments: Mapping[str, str] = field(default_factory=dict)


def pod_status(pod: Pod, standing: Standing, now: dt.datetime) -> Json:
    """The fields that are the kubelet's. Conditions of others are kept; the phase never goes back."""
    phase = _phase(pod, standing)
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, standing, phase, now),
        "hostIP": standing.host,
        "startTime": timestamp(standing.started),
        "containerStatuses": [_container(pod, each, standing) for each in pod.spec.containers],
    }
    if standing.address:
        status |= {"podIP": standing.address, "podIPs": [{"ip": standing.address}]}
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_container(pod, each, standing) for each in pod.spec.init_containers]
    if standing.verdict:
        status |= {"reason": standing.verdict.reason, "message": standing.verdict.message}
    return status


def _phase(pod: Pod, standing: Standing) -> str:
    if pod.is_finished:
        return pod.phase
    phase = lives_of.phase(pod.spec, standing.lives, standing.course)
    if standing.verdict and phase == "Succeeded":
        phase = "Failed"
    return max(pod.phase, phase, key=lambda name: _ORDER.get(name, 0))


# ----------------------------------------------------------------------------------------------------------- conditions


def _conditions(pod: Pod, standing: Standing, phase: str, now: dt.datetime) -> list[Json]:
    found = {condition.get("type"): condition for condition in pod.status.get("conditions") or []}
    containers_ready = _containers_ready(pod, standing.lives, phase)
    own = {
        "PodReadyToStartContainers": ("False" if phase in _FINAL else "True", "", ""),
        "Initialized": _initialized(pod, standing.lives, phase),
        "Ready": _ready(pod, containers_ready, found),
        "ContainersReady": containers_ready,
        "PodScheduled": ("True", "", ""),
    }
    if standing.verdict and standing.verdict.reason == "Terminated":
        own["DisruptionTarget"] = ("True", "TerminationByKubelet", standing.verdict.message)
    told = [_condition(kind, said, found.get(kind), now) for kind, said in own.items()]
    return told + [condition for kind, condition in found.items() if kind not in own]


def _condition(kind: str, said: tuple[str, str, str], before: Json | None, now: dt.datetime) -> Json:
    status, reason, message = said
    since = timestamp(now)
    if before and before.get("status") == status:
        since = before.get("lastTransitionTime") or since
    condition: Json = {"type": kind, "status": status, "lastTransitionTime": since}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _initialized(pod: Pod, lives: Lives, phase: str) -> tuple[str, str, str]:
    if phase == "Succeeded":
        return "True", "PodCompleted", ""
    if late := lives_of.uninitialized(pod.spec, lives):
        return "False", "ContainersNotInitialized", f"containers with incomplete status: {_listed(late)}"
    return "True", "", ""


def _containers_ready(pod: Pod, lives: Lives, phase: str) -> tuple[str, str, str]:
    if phase in _FINAL:
        return "False", "PodCompleted" if phase == "Succeeded" else "PodFailed", ""
    lasting = [*(each for each in pod.spec.init_containers if each.is_sidecar), *pod.spec.containers]
    unready = [each.name for each in lasting if not lives[each.name].is_ready]
    if unready:
        return "False", "ContainersNotReady", f"containers with unready status: {_listed(unready)}"
    return "True", "", ""


def _ready(pod: Pod, containers: tuple[str, str, str], found: Mapping[str, Json]) -> tuple[str, str, str]:
    """Where all containers are ready, others may have a say, too: spec.readinessGates."""
    if containers[0] != "True":
        return containers
    words = []
    for gate in pod.spec.readiness_gates:
        condition = found.get(gate.condition_type)
        if condition is None:
            words.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif (state := condition.get("status")) != "True":
            words.append(f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {state}')
    return ("False", "ReadinessGatesNotReady", ", ".join(words)) if words else ("True", "", "")


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


# ----------------------------------------------------------------------------------------------------------- containers


def _container(pod: Pod, container: Container, standing: Standing) -> Json:
    life = standing.lives[container.name]
    run = life.run
    state = _state(pod, container, standing)
    last = run if run and run.outcome and "waiting" in state else life.before
    status: Json = {
        "name": container.name,
        "image": container.image,
        "imageID": standing.environments.get(container.name, ""),
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


def _is_ready(pod: Pod, container: Container, life: Life) -> bool:
    """An init container is ready when it is through."""
    if container in pod.spec.init_containers and not container.is_sidecar:
        return life.has_succeeded
    return life.is_ready


def _state(pod: Pod, container: Container, standing: Standing) -> Json:
    life = standing.lives[container.name]
    run = life.run
    if run is not None and run.is_alive:
        if run.started is not None and life.is_running:
            return {"running": {"startedAt": timestamp(run.started)}}
        return {"waiting": {"reason": _before_the_start(pod)}}
    waiting = _waiting(pod, container, standing)
    if run is not None and run.outcome is not None and not waiting:
        return {"terminated": _terminated(run.outcome, run.identity)}
    return {"waiting": waiting or {"reason": _before_the_start(pod)}}


def _waiting(pod: Pod, container: Container, standing: Standing) -> Json | None:
    """Why a container that should run does not, if there is more to say than that it has not begun."""
    life = standing.lives[container.name]
    if standing.course is Course.HALT or pod.is_finished:
        return None
    if life.trouble is not None:
        return {"reason": life.trouble.reason, "message": life.trouble.message}
    policy = "Always" if container.is_sidecar else pod.spec.restart_policy
    if life.backoff is None or life.back_at() is None or not lives_of.restarts(policy, life):
        return None
    return {"reason": "CrashLoopBackOff", "message": backing_off(pod, container.name, life.backoff.delay)}


def _before_the_start(pod: Pod) -> str:
    return "PodInitializing" if pod.spec.init_containers else "ContainerCreating"


def backing_off(pod: Pod, container: str, delay: float) -> str:
    return f"back-off {_go_duration(delay)} restarting failed container={container} pod={full_name(pod)}"


def full_name(pod: Pod) -> str:
    """As a kubelet names a pod in its messages."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _terminated(outcome: Outcome, identity: str) -> Json:
    told: Json = {
        "exitCode": outcome.code,
        "reason": outcome.reason,
        "startedAt": timestamp(outcome.started) if outcome.started else EPOCH,
        "finishedAt": timestamp(outcome.finished),
        "containerID": container_id(identity),
    }
    if outcome.signal:
        told["signal"] = outcome.signal
    if outcome.message:
        told["message"] = outcome.message
    return told


def relevant(status: Mapping[str, Any], fields: Iterable[str]) -> Json:
    """The part of a stored status that the kubelet has a say in, without the nulls that some servers add."""
    return {name: _without_nulls(status[name]) for name in fields if name in status}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return value
