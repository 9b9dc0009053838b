"""Decides, from what a pod says and what its containers have done, which of them to start, to stop or to wait for.

Pure: time comes in, orders go out. The rules are those of Kubernetes: init containers one after the other, sidecars
among them staying, the restart policy with its back-off, and an end that is decided by the main containers alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tarragon.localcluster.kubelet.base.spec import Container, PodSpec

FIRST_DELAY = 10.0
LONGEST_DELAY = 300.0
FORGOTTEN_AFTER = 600.0
"""A container that ran longer than this before it ended is restarted as if it were the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended. `started` is None when the command could not even be started.

    `was_told`: it was told to end, not necessarily by a kubelet. `was_lost`: nobody saw how it ended.
    """

    code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started: dt.datetime | None = None
    finished: dt.datetime
    was_told: bool = False
    was_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a container; `number` counts its restarts. Without `started` it is just being started."""

    number: int
    identity: str
    started: dt.datetime | None = None
    outcome: Outcome | None = None

    @property
    def is_alive(self) -> bool:
        return self.outcome is None


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause that the latest restart has earned, in seconds, and when that restart was."""

    delay: float
    since: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a container cannot be started for now, in the words of its status, since when, and when to try again."""

    reason: str
    message: str
    since: dt.datetime
    until: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What hooks and probes have found out of a run. Without any of them, a container that runs is fit.

    `is_hooked`: its postStart hook is through. `is_up`: its startup probe has succeeded. `is_ready`: so says its
    readiness probe. `unfit` names the probe that has failed for good: it is to be killed, and then to start again.
    """

    is_hooked: bool = True
    is_up: bool = True
    is_ready: bool = True
    unfit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """All that is known of one container: its latest run, the one before, and what delays the next.

    `ended` is when the kubelet saw the latest run end, by its own clock. `fitness` is that of the latest run.
    """

    run: Run | None = None
    before: Run | None = None
    ended: dt.datetime | None = None
    backoff: Backoff | None = None
    trouble: Trouble | None = None
    fitness: Fitness = Fitness()

    @property
    def is_alive(self) -> bool:
        return self.run is not None and self.run.is_alive

    @property
    def is_running(self) -> bool:
        """As its status says it: not before its postStart hook is through."""
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

    def back_at(self) -> dt.datetime | None:
        """When the back-off is over; None when there is none."""
        return None if self.ended is None else back_at(self.backoff, self.ended)


Lives = Mapping[str, Life]
"""By name of the container; every container of the pod has one."""


def back_at(backoff: Backoff | None, ended: dt.datetime) -> dt.datetime | None:
    if backoff is None or (ended - backoff.since).total_seconds() > FORGOTTEN_AFTER:
        return None
    return ended + dt.timedelta(seconds=backoff.delay)


def next_backoff(life: Life, now: dt.datetime) -> Backoff | None:
    """The back-off that counts after a start now: the first start earns none."""
    if life.ended is None:
        return None
    if life.backoff is None or back_at(life.backoff, life.ended) is None:
        return Backoff(FIRST_DELAY, now)
    return Backoff(min(life.backoff.delay * 2, LONGEST_DELAY), now)


class Course(Enum):
    """Where the pod as a whole is going."""

    ON = "on"
    """Containers are started and restarted as the pod says."""
    HALT = "halt"
    """Deleted, refused, past its deadline or over: nothing starts any more, what runs is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What to do now, and when to ask again even if nothing happens.

    Those in `await_turn` are to be stopped as soon as others have ended.
    """

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    await_turn: tuple[str, ...] = ()
    wake: dt.datetime | None = None


@dataclass(slots=True)
class _Plan:
    now: dt.datetime
    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    wake: list[dt.datetime] = field(default_factory=list)

    def consider(self, container: Container, life: Life, policy: str) -> None:
        """Start it, or wait until it may be started, or stop what is unfit, or leave it as it is."""
        if life.is_alive and life.fitness.unfit:
            self.stop.append(container.name)
        if life.is_alive or (life.run and not restarts(policy, life)):
            return
        due = max((until for since, until in _pauses(life) if since <= self.now), default=self.now)
        if due <= self.now:
            self.start.append(container.name)
        else:
            self.wake.append(due)

    def orders(self) -> Orders:
        return Orders(start=tuple(self.start), stop=tuple(self.stop), wake=min(self.wake, default=None))


def _pauses(life: Life) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """From when to when. One that begins in the future is none: somebody has set the clock back, maybe by hours."""
    if life.ended is not None and (until := life.back_at()) is not None:
        yield life.ended, until
    if life.trouble is not None:
        yield life.trouble.since, life.trouble.until


def restarts(policy: str, life: Life) -> bool:
    """Whether an ended container is started again. One that a probe has found unfit has not ended by itself."""
    was_unfit = bool(life.fitness.unfit) and life.fitness.is_hooked
    return policy == "Always" or (policy == "OnFailure" and (life.has_failed or was_unfit))


def decide(spec: PodSpec, lives: Lives, course: Course, now: dt.datetime) -> Orders:
    if course is Course.HALT or is_over(spec, lives):
        return _ending(spec, lives)
    plan = _Plan(now)
    if _initialize(spec, lives, plan):
        for container in spec.containers:
            life = lives[container.name]
            plan.consider(container, life, spec.restart_policy)
            is_new = container.name in plan.start
            if container.post_start and (is_new or (life.is_alive and not life.fitness.is_hooked)):
                break  # as with a kubelet, which does nothing else for a pod while it waits for a postStart hook
    return plan.orders()


def _ending(spec: PodSpec, lives: Lives) -> Orders:
    """All at once, but the sidecars: they serve the others to the end, and go in the reverse order of their start."""
    sidecars = [each.name for each in spec.init_containers if each.is_sidecar and lives[each.name].is_alive]
    others = tuple(name for name, life in lives.items() if life.is_alive and name not in sidecars)
    if others or not sidecars:
        return Orders(stop=others, await_turn=tuple(sidecars))
    return Orders(stop=(sidecars[-1],), await_turn=tuple(sidecars[:-1]))


def _initialize(spec: PodSpec, lives: Lives, plan: _Plan) -> bool:
    """Whether all init containers are through; if not, the first that is not has been seen to. Sidecars always are."""
    late = uninitialized(spec, lives)
    for container in spec.init_containers:
        life = lives[container.name]
        if container.is_sidecar:
            plan.consider(container, life, "Always")
        elif container.name in late:
            plan.consider(container, life, "OnFailure" if spec.restart_policy != "Never" else "Never")
        if container.name in late:
            return False
    return True


def uninitialized(spec: PodSpec, lives: Lives) -> tuple[str, ...]:
    """The init containers for which those after them still wait: till a sidecar has started, anybody else succeeded.

    Once somebody after it has run, a sidecar has had its turn, whatever becomes of it.
    """
    late: list[str] = []
    has_gone_on = any(lives[container.name].run for container in spec.containers)
    for container in reversed(spec.init_containers):
        life = lives[container.name]
        is_through = has_gone_on or life.has_started if container.is_sidecar else life.has_succeeded
        if not is_through:
            late.append(container.name)
        has_gone_on = has_gone_on or life.run is not None
    return tuple(reversed(late))


def is_over(spec: PodSpec, lives: Lives) -> bool:
    """Whether no container that matters will ever run again; sidecars may still have to be stopped."""
    if failed_initialization(spec, lives):
        return True
    if spec.restart_policy == "Always":
        return False
    mains = [lives[container.name] for container in spec.containers]
    return all(life.run and not life.is_alive and not restarts(spec.restart_policy, life) for life in mains)


def failed_initialization(spec: PodSpec, lives: Lives) -> bool:
    return spec.restart_policy == "Never" and any(
        lives[container.name].has_failed for container in spec.init_containers if not container.is_sidecar
    )


def phase(spec: PodSpec, lives: Lives, course: Course) -> str:
    """As a kubelet derives it. A halted pod has its final phase only when nothing of it runs any more."""
    mains = [lives[container.name] for container in spec.containers]
    if course is Course.HALT or is_over(spec, lives):
        return _final_phase(mains, lives)
    if uninitialized(spec, lives):
        return "Pending"
    if any(life.run is None or (life.run.number == 0 and life.run.is_alive and not life.is_running) for life in mains):
        return "Pending"
    return "Running"


def _final_phase(mains: list[Life], lives: Lives) -> str:
    if any(life.is_alive for life in lives.values()):
        return "Running" if any(life.run for life in mains) else "Pending"
    return "Succeeded" if all(life.has_succeeded for life in mains) else "Failed"
