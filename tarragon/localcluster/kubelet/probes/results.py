"""What single tries of a probe add up to, and how they are told. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tarragon.localcluster.kubelet.base.spec import Container, Probe
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Fitness


class Kind(Enum):
    """The value is the word of the events."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"

    def of(self, container: Container) -> Probe | None:
        match self:
            case Kind.STARTUP:
                return container.startup_probe
            case Kind.LIVENESS:
                return container.liveness_probe
            case Kind.READINESS:
                return container.readiness_probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one try has found. `is_well` is None when it could not be tried at all: then it does not count."""

    is_well: bool | None
    words: str = ""
    is_doubtful: bool = False
    """Well, but there is something to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """`state` is what the probe says by now, None for nothing yet; `row` counts equal findings one after the other."""

    state: bool | None
    is_well: bool | None = None
    row: int = 0

    def after(self, finding: Finding, probe: Probe) -> Tally:
        if finding.is_well is None:
            return self
        row = self.row + 1 if finding.is_well == self.is_well else 1
        needed = probe.success_threshold if finding.is_well else probe.failure_threshold
        state = finding.is_well if row >= needed else self.state
        return Tally(state=state, is_well=finding.is_well, row=row)


def told(kind: Kind, finding: Finding) -> tuple[str, str] | None:
    """Reason and message of the event, in a kubelet's words; None when there is nothing to tell."""
    if finding.is_doubtful:
        return "ProbeWarning", f"{kind.value} probe warning: {finding.words}"
    if finding.is_well:
        return None
    verb = "errored" if finding.is_well is None else "failed"
    return "Unhealthy", f"{kind.value} probe {verb}: {finding.words}"


def is_attended(container: Container) -> bool:
    """Whether a run of it needs anything but to be started and stopped."""
    return bool(container.post_start) or any(kind.of(container) for kind in Kind)


def newborn(container: Container) -> Fitness:
    """Of a run that is just being started: nothing is taken for granted that is going to be asked."""
    return Fitness(
        is_hooked=container.post_start is None,
        is_up=container.startup_probe is None,
        is_ready=container.readiness_probe is None,
    )


def unfit(fitness: Fitness, kind: Kind) -> Fitness:
    return replace(fitness, unfit=f"{kind.value.lower()} probe")


def grace_of(container: Container, unfit_by: str) -> int | None:
    """What the probe that has failed allows by itself."""
    for kind in (Kind.STARTUP, Kind.LIVENESS):
        probe = kind.of(container)
        if probe is not None and unfit_by == f"{kind.value.lower()} probe":
            return probe.termination_grace_period_seconds
    return None
