"""Aggregates single probe results by the probe's thresholds, and words their events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tarragon.localcluster.kubelet.base.spec import Container, Probe
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Fitness


class Kind(Enum):
    """The kinds of probes; the value is the word used in events."""

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
    """The result of one try. `is_well` is None when the probe could not run: such a try does not count."""

    is_well: bool | None
    words: str = ""
    is_doubtful: bool = False
    """Success, but with a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A probe's aggregated results. `state` is None before a threshold is reached; `row` counts equal ones in a row."""

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
    """Reason and message of the event for a result, worded as in Kubernetes; None for a plain success."""
    if finding.is_doubtful:
        return "ProbeWarning", f"{kind.value} probe warning: {finding.words}"
    if finding.is_well:
        return None
    verb = "errored" if finding.is_well is None else "failed"
    return "Unhealthy", f"{kind.value} probe {verb}: {finding.words}"


def is_attended(container: Container) -> bool:
    """Whether the container has a postStart hook or any probe."""
    return bool(container.post_start) or any(kind.of(container) for kind in Kind)


def newborn(container: Container) -> Fitness:
    """The fitness of a run that is starting: false for everything that a hook or probe will decide."""
    return Fitness(
        is_hooked=container.post_start is None,
        is_up=container.startup_probe is None,
        is_ready=container.readiness_probe is None,
    )


def unfit(fitness: Fitness, kind: Kind) -> Fitness:
    return replace(fitness, unfit=f"{kind.value.lower()} probe")


def grace_of(container: Container, unfit_by: str) -> int | None:
    """The grace period that the failed probe overrides, if any."""
    for kind in (Kind.STARTUP, Kind.LIVENESS):
        probe = kind.of(container)
        if probe is not None and unfit_by == f"{kind.value.lower()} probe":
            return probe.termination_grace_period_seconds
    return None
