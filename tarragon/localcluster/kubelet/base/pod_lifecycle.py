"""Decides from a pod's spec and its containers' state which containers to start, to stop or to wait for. Pure.

The rules are those of Kubernetes: init containers run one after the other, sidecars among them keep running, the
restart policy applies with its back-off, and the main containers alone decide when the pod is over.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tarragon.localcluster.kubelet.base.spec import Container, PodSpec

FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 300.0
BACKOFF_RESET_SECONDS = 600.0
"""The back-off is reset for a container that ran longer than this before it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a run ended. `started` is None when the command could not be started.

    `received_sigterm`: it received SIGTERM, not necessarily from a kubelet. `was_lost`: its exit was not observed.
    """

    code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started: dt.datetime | None = None
    finished: dt.datetime
    received_sigterm: bool = False
    was_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a container; `number` counts its restarts. `started` is None while it is starting."""

    number: int
    identity: str
    started: dt.datetime | None = None
    outcome: ExitStatus | None = None

    @property
    def is_alive(self) -> bool:
        return self.outcome is None


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay in seconds before the next restart, and when the latest restart was."""

    delay: float
    since: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """Why a container could not be started (reason and message of its status), since when, and when to retry."""

    reason: str
    message: str
    since: dt.datetime
    until: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStatus:
    """The results of hooks and probes for a run. The defaults are those of a container without any.

    `is_hooked`: the postStart hook has finished. `is_up`: the startup probe has succeeded. `is_ready`: the readiness
    probe succeeds. `unfit`: the probe or hook whose failure requires a kill, and a restart if the policy allows it.
    """

    is_hooked: bool = True
    is_up: bool = True
    is_ready: bool = True
    unfit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """The state of one container: its latest run, the run before, and what delays the next one.

    `ended` is when the kubelet saw the latest run end, by its own clock. `fitness` belongs to the latest run.
    """

    run: Run | None = None
    previous: Run | None = None
    ended: dt.datetime | None = None
    backoff: Backoff | None = None
    start_failure: StartFailure | None = None
    fitness: ProbeStatus = ProbeStatus()

    @property
    def is_alive(self) -> bool:
        return self.run is not None and self.run.is_alive

    @property
    def is_running(self) -> bool:
        """Whether the status is `running`: not before the postStart hook has finished."""
        return self.run is not None and self.run.is_alive and self.run.started is not None and self.fitness.is_hooked

    @property
    def has_started(self) -> bool:
        return self.is_running and self.fitness.is_up

    @property
    def is_ready(self) -> bool:
        return self.has_started and self.fitness.is_ready

    @property
    def has_succeeded(self) -> bool:
        return self.run is not None and self.run.outcome is not None and self.run.outcome.code == 0

    @property
    def has_failed(self) -> bool:
        return self.run is not None and self.run.outcome is not None and self.run.outcome.code != 0

    def backoff_end(self) -> dt.datetime | None:
        """When the back-off ends; None without a back-off."""
        return None if self.ended is None else backoff_end(self.backoff, self.ended)


RuntimeStatuses = Mapping[str, RuntimeStatus]
"""The state of every container of the pod, by name."""


def backoff_end(backoff: Backoff | None, ended: dt.datetime) -> dt.datetime | None:
    if backoff is None or (ended - backoff.since).total_seconds() > BACKOFF_RESET_SECONDS:
        return None
    return ended + dt.timedelta(seconds=backoff.delay)


def next_backoff(life: RuntimeStatus, now: dt.datetime) -> Backoff | None:
    """The back-off after a start at `now`; the first start has none."""
    if life.ended is None:
        return None
    if life.backoff is None or backoff_end(life.backoff, life.ended) is None:
        return Backoff(FIRST_BACKOFF_SECONDS, now)
    return Backoff(min(life.backoff.delay * 2, MAX_BACKOFF_SECONDS), now)


class DesiredState(Enum):
    """Whether the pod runs or is being stopped."""

    RUN = "on"
    """Containers are started and restarted by the pod's policy."""
    STOP = "halt"
    """The pod is deleted, rejected, past its deadline or finished: running containers are stopped, none starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerActions:
    """The containers to start and to stop now, and when to decide again even if nothing happens.

    The containers in `stop_later` are stopped once others have ended.
    """

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    stop_later: tuple[str, ...] = ()
    wake: dt.datetime | None = None


@dataclass(slots=True)
class _Plan:
    now: dt.datetime
    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    wake: list[dt.datetime] = field(default_factory=list)

    def consider(self, container: Container, life: RuntimeStatus, policy: str) -> None:
        """Start the container, schedule a later start, stop it if unfit, or leave it as it is."""
        if life.is_alive and life.fitness.unfit:
            self.stop.append(container.name)
        if life.is_alive or (life.run and not restarts(policy, life)):
            return
        due = max((until for since, until in _pauses(life) if since <= self.now), default=self.now)
        if due <= self.now:
            self.start.append(container.name)
        else:
            self.wake.append(due)

    def orders(self) -> ContainerActions:
        return ContainerActions(start=tuple(self.start), stop=tuple(self.stop), wake=min(self.wake, default=None))


def _pauses(life: RuntimeStatus) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """The back-off and the retry delay, as begin and end. The caller ignores begins in the future: a clock set back."""
    if life.ended is not None and (until := life.backoff_end()) is not None:
        yield life.ended, until
    if life.start_failure is not None:
        yield life.start_failure.since, life.start_failure.until


def restarts(policy: str, life: RuntimeStatus) -> bool:
    """Whether an ended container is restarted. One that a probe failed counts as failed, whatever its exit code."""
    was_unfit = bool(life.fitness.unfit) and life.fitness.is_hooked
    return policy == "Always" or (policy == "OnFailure" and (life.has_failed or was_unfit))


def compute_actions(spec: PodSpec, lives: RuntimeStatuses, course: DesiredState, now: dt.datetime) -> ContainerActions:
    if course is DesiredState.STOP or is_complete(spec, lives):
        return _stop_order(spec, lives)
    plan = _Plan(now)
    if _initialize(spec, lives, plan):
        for container in spec.containers:
            life = lives[container.name]
            plan.consider(container, life, spec.restart_policy)
            is_new = container.name in plan.start
            if container.post_start and (is_new or (life.is_alive and not life.fitness.is_hooked)):
                break  # as in the kubelet, which starts no further container while a postStart hook runs
    return plan.orders()


def _stop_order(spec: PodSpec, lives: RuntimeStatuses) -> ContainerActions:
    """Stop all containers at once; then the sidecars, one at a time, in the reverse order of their start."""
    sidecars = [each.name for each in spec.init_containers if each.is_sidecar and lives[each.name].is_alive]
    others = tuple(name for name, life in lives.items() if life.is_alive and name not in sidecars)
    if others or not sidecars:
        return ContainerActions(stop=others, stop_later=tuple(sidecars))
    return ContainerActions(stop=(sidecars[-1],), stop_later=tuple(sidecars[:-1]))


def _initialize(spec: PodSpec, lives: RuntimeStatuses, plan: _Plan) -> bool:
    """Whether the pod is initialized; else the first pending init container is considered. Sidecars always are."""
    pending = pending_init_containers(spec, lives)
    for container in spec.init_containers:
        life = lives[container.name]
        if container.is_sidecar:
            plan.consider(container, life, "Always")
        elif container.name in pending:
            plan.consider(container, life, "OnFailure" if spec.restart_policy != "Never" else "Never")
        if container.name in pending:
            return False
    return True


def pending_init_containers(spec: PodSpec, lives: RuntimeStatuses) -> tuple[str, ...]:
    """The init containers that later containers still wait for: a sidecar must have started, others have succeeded.

    A sidecar counts as initialized once a later container has run, whatever happens to it then.
    """
    pending: list[str] = []
    has_later_run = any(lives[container.name].run for container in spec.containers)
    for container in reversed(spec.init_containers):
        life = lives[container.name]
        is_initialized = has_later_run or life.has_started if container.is_sidecar else life.has_succeeded
        if not is_initialized:
            pending.append(container.name)
        has_later_run = has_later_run or life.run is not None
    return tuple(reversed(pending))


def is_complete(spec: PodSpec, lives: RuntimeStatuses) -> bool:
    """Whether no main container will run again; sidecars may still have to be stopped."""
    if failed_initialization(spec, lives):
        return True
    if spec.restart_policy == "Always":
        return False
    mains = [lives[container.name] for container in spec.containers]
    return all(life.run and not life.is_alive and not restarts(spec.restart_policy, life) for life in mains)


def failed_initialization(spec: PodSpec, lives: RuntimeStatuses) -> bool:
    return spec.restart_policy == "Never" and any(
        lives[container.name].has_failed for container in spec.init_containers if not container.is_sidecar
    )


def phase(spec: PodSpec, lives: RuntimeStatuses, course: DesiredState) -> str:
    """The pod's phase by the kubelet's rules. A halted pod gets its final phase only when all containers have ended."""
    mains = [lives[container.name] for container in spec.containers]
    if course is DesiredState.STOP or is_complete(spec, lives):
        return _final_phase(mains, lives)
    if pending_init_containers(spec, lives):
        return "Pending"
    if any(life.run is None or (life.run.number == 0 and life.run.is_alive and not life.is_running) for life in mains):
        return "Pending"
    return "Running"


def _final_phase(mains: list[RuntimeStatus], lives: RuntimeStatuses) -> str:
    if any(life.is_alive for life in lives.values()):
        return "Running" if any(life.run for life in mains) else "Pending"
    return "Succeeded" if all(life.has_succeeded for life in mains) else "Failed"
