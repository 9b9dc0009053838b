"""Aggregates single probe results by the probe's thresholds, and words their events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tarragon.localcluster.kubelet.base.pod_lifecycle import ProbeStatus
from tarragon.localcluster.kubelet.base.spec import Container, Probe


class ProbeKind(Enum):
    """The kinds of probes; the value is the word used in events."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"

    def of(self, container: Container) -> Probe | None:
        match self:
            case ProbeKind.STARTUP:
                return container.startup_probe
            case ProbeKind.LIVENESS:
                return container.liveness_probe
            case ProbeKind.READINESS:
                return container.readiness_probe


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one try. `succeeded` is None when the probe could not run: such a try does not count."""

    succeeded: bool | None
    output: str = ""
    is_warning: bool = False
    """Success, but with a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTally:
    """A probe's aggregated results. `state` is None before a threshold is reached; `row` counts equal ones in a row."""

    state: bool | None
    last_succeeded: bool | None = None
    streak: int = 0

    def after(self, finding: ProbeResult, probe: Probe) -> ProbeTally:
        if finding.succeeded is None:
            return self
        row = self.streak + 1 if finding.succeeded == self.last_succeeded else 1
        needed = probe.success_threshold if finding.succeeded else probe.failure_threshold
        state = finding.succeeded if row >= needed else self.state
        return ProbeTally(state=state, last_succeeded=finding.succeeded, streak=row)


def event_of(kind: ProbeKind, finding: ProbeResult) -> tuple[str, str] | None:
    """Reason and message of the event for a result, worded as in Kubernetes; None for a plain success."""
    if finding.is_warning:
        return "ProbeWarning", f"{kind.value} probe warning: {finding.output}"
    if finding.succeeded:
        return None
    verb = "errored" if finding.succeeded is None else "failed"
    return "Unhealthy", f"{kind.value} probe {verb}: {finding.output}"


def has_probe_or_hook(container: Container) -> bool:
    """Whether the container has a postStart hook or any probe."""
    return bool(container.post_start) or any(kind.of(container) for kind in ProbeKind)


def initial_status(container: Container) -> ProbeStatus:
    """The fitness of a run that is starting: false for everything that a hook or probe will decide."""
    return ProbeStatus(
        is_hooked=container.post_start is None,
        is_up=container.startup_probe is None,
        is_ready=container.readiness_probe is None,
    )


def mark_failed(fitness: ProbeStatus, kind: ProbeKind) -> ProbeStatus:
    return replace(fitness, unfit=f"{kind.value.lower()} probe")


def probe_grace_seconds(container: Container, unfit_by: str) -> int | None:
    """The grace period that the failed probe overrides, if any."""
    for kind in (ProbeKind.STARTUP, ProbeKind.LIVENESS):
        probe = kind.of(container)
        if probe is not None and unfit_by == f"{kind.value.lower()} probe":
            return probe.termination_grace_period_seconds
    return None
