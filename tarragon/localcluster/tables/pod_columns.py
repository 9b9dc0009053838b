"""The columns of `kubectl get pods`, among them the state of a pod in one word, derived from its containers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.kube.codec import parse_time
from tarragon.localcluster.tables.cells import text, wide
from tarragon.localcluster.tables.table import AGE, NAME, TableColumn, duration

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSummary:
    """The state of a pod. As in kubectl, `restarts` counts init containers during initialization, later the others."""

    ready: int
    containers: int
    status: str
    restarts: int
    last_restart: dt.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupSummary:
    """The share of one group of containers. `word` is empty if the group does not determine the pod's state."""

    word: str = ""
    ready: int = 0
    restarts: int = 0
    last_restart: dt.datetime | None = None
    is_running: bool = False


def summary(pod: Mapping[str, Any]) -> PodSummary:
    """Summarize a pod as `kubectl get` does."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = _sidecars(spec)
    first = _initializing(status, spec.get("initContainers") or [], sidecars)
    word = first.word
    shown = first
    ready = first.ready
    if not first.word or _condition(status, "Initialized"):
        main = _main_containers(status)
        ready += main.ready
        word = main.word or first.word
        shown = _with_sidecars(main, status, sidecars)
        if word == "Completed" and main.is_running:
            word = "Running" if _condition(status, "Ready") else "NotReady"
    return PodSummary(
        ready=ready,
        containers=len(spec.get("containers") or []) + len(sidecars),
        status=_deletion_word(pod) or word or _phase_word(status),
        restarts=shown.restarts,
        last_restart=shown.last_restart,
    )


def _phase_word(status: Status) -> str:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "Pending")


def _deletion_word(pod: Mapping[str, Any]) -> str:
    """The word for a pod that is being deleted, else empty."""
    status = pod.get("status") or {}
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return ""
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return "" if status.get("phase") in {"Succeeded", "Failed"} else "Terminating"


def _sidecars(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names of the sidecars: init containers that keep running beside the others."""
    return frozenset(
        str(container.get("name"))
        for container in spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    )


def _initializing(status: Status, containers: Sequence[Any], sidecars: frozenset[str]) -> _GroupSummary:
    """The progress of the init containers. They run in order, so the first unfinished one determines the word."""
    statuses = status.get("initContainerStatuses") or []
    ready, word = 0, ""
    for finished, each in enumerate(statuses):
        terminated = (each.get("state") or {}).get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if each.get("name") in sidecars and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        word = "Init:" + (_init_reason(each) or f"{finished}/{len(containers)}")
        break
    return _GroupSummary(word=word, ready=ready, restarts=_restarts(statuses), last_restart=_last_restart(statuses))


def _init_reason(status: Status) -> str:
    """The reason that an init container waits or failed; empty if it only waits for its turn or runs."""
    state = status.get("state") or {}
    if state.get("terminated") is not None:
        return _exit_word(state["terminated"])
    waiting = str((state.get("waiting") or {}).get("reason") or "")
    return "" if waiting == "PodInitializing" else waiting


def _main_containers(status: Status) -> _GroupSummary:
    """The main containers. The first one with a reason determines the word."""
    statuses = status.get("containerStatuses") or []
    running = [each for each in statuses if each.get("ready") and (each.get("state") or {}).get("running") is not None]
    return _GroupSummary(
        word=next(filter(None, map(_word, statuses)), ""),
        ready=len(running),
        restarts=_restarts(statuses),
        last_restart=_last_restart(statuses),
        is_running=bool(running),
    )


def _word(status: Status) -> str:
    state = status.get("state") or {}
    if reason := (state.get("waiting") or {}).get("reason"):
        return str(reason)
    terminated = state.get("terminated")
    return "" if terminated is None else _exit_word(terminated)


def _exit_word(terminated: Mapping[str, Any]) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _with_sidecars(part: _GroupSummary, status: Status, sidecars: frozenset[str]) -> _GroupSummary:
    """Add the restarts of sidecars. Other init containers no longer count after the pod has started."""
    statuses = [each for each in status.get("initContainerStatuses") or [] if each.get("name") in sidecars]
    moments = [moment for moment in (part.last_restart, _last_restart(statuses)) if moment]
    return _GroupSummary(restarts=part.restarts + _restarts(statuses), last_restart=max(moments, default=None))


def _restarts(statuses: Sequence[Status]) -> int:
    return sum(int(each.get("restartCount") or 0) for each in statuses)


def _last_restart(statuses: Sequence[Status]) -> dt.datetime | None:
    ends = (((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for each in statuses)
    return max((parse_time(str(end)) for end in ends if end), default=None)


def _condition(status: Status, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or [])


# --------------------------------------------------------------------------------------------------------- columns


def _ready(pod: Mapping[str, Any], _: dt.datetime) -> str:
    state = summary(pod)
    return f"{state.ready}/{state.containers}"


def _state(pod: Mapping[str, Any], _: dt.datetime) -> str:
    return summary(pod).status


def _restarted(pod: Mapping[str, Any], now: dt.datetime) -> str:
    state = summary(pod)
    if not state.restarts or state.last_restart is None:
        return str(state.restarts)
    return f"{state.restarts} ({duration(now - state.last_restart)} ago)"


def _gates(pod: Mapping[str, Any], _: dt.datetime) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or []
    if not gates:
        return "<none>"
    status = pod.get("status") or {}
    return f"{sum(_condition(status, str(gate.get('conditionType'))) for gate in gates)}/{len(gates)}"


POD_COLUMNS: Sequence[TableColumn] = (
    NAME,
    TableColumn("Ready", _ready, description="The number of ready containers, and of all containers."),
    TableColumn("Status", _state, description="The status of the pod in one word."),
    TableColumn(
        "Restarts",
        _restarted,
        description="Restarts of the containers, and the time since the last one.",
    ),
    AGE,
    wide("IP", text("status", "podIP")),
    wide("Node", text("spec", "nodeName")),
    wide("Nominated Node", text("status", "nominatedNodeName")),
    wide("Readiness Gates", _gates),
)
