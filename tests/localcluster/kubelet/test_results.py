"""The aggregation of probe results."""

from __future__ import annotations

import pytest

from tarragon.localcluster.kubelet.base.pod_lifecycle import ProbeStatus
from tarragon.localcluster.kubelet.base.spec import Probe
from tarragon.localcluster.kubelet.probes.results import (
    ProbeKind,
    ProbeResult,
    ProbeTally,
    event_of,
    has_probe_or_hook,
    initial_status,
    probe_grace_seconds,
)
from tests.localcluster.kubelet.builders import container

WELL, UNWELL, UNTRIED = ProbeResult(succeeded=True), ProbeResult(succeeded=False), ProbeResult(succeeded=None)


def states(*findings: ProbeResult, state: bool | None = None, success: int = 1, failure: int = 3) -> list[bool | None]:
    probe = Probe(success_threshold=success, failure_threshold=failure)
    tally, found = ProbeTally(state=state), []
    for finding in findings:
        tally = tally.after(finding, probe)
        found.append(tally.state)
    return found


def test_the_failure_threshold_counts_consecutive_failures() -> None:
    assert states(UNWELL, UNWELL, UNWELL, state=True) == [True, True, False]
    assert states(UNWELL, UNWELL, WELL, UNWELL, UNWELL, UNWELL, state=True)[-2:] == [True, False]


def test_the_success_threshold_counts_consecutive_successes() -> None:
    assert states(WELL, state=False) == [True]
    assert states(WELL, UNWELL, WELL, WELL, state=False, success=2) == [False, False, False, True]


def test_a_try_that_could_not_run_does_not_count() -> None:
    assert states(UNWELL, UNTRIED, UNWELL, UNTRIED, UNWELL, state=True) == [True, True, True, True, False]


def test_a_startup_probe_has_no_state_before_a_threshold_is_reached() -> None:
    assert states(UNWELL, WELL) == [None, True]
    assert states(UNWELL, UNWELL, UNWELL) == [None, None, False]


@pytest.mark.parametrize(
    ("kind", "finding", "event"),
    [
        (ProbeKind.LIVENESS, WELL, None),
        (
            ProbeKind.LIVENESS,
            ProbeResult(succeeded=False, output="HTTP probe failed with statuscode: 500"),
            ("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
        ),
        (ProbeKind.READINESS, ProbeResult(succeeded=None, output="no"), ("Unhealthy", "Readiness probe errored: no")),
        (
            ProbeKind.STARTUP,
            ProbeResult(succeeded=True, output="elsewhere", is_warning=True),
            ("ProbeWarning", "Startup probe warning: elsewhere"),
        ),
    ],
)
def test_probe_events_are_worded_as_by_a_kubelet(
    kind: ProbeKind, finding: ProbeResult, event: tuple[str, str] | None
) -> None:
    assert event_of(kind, finding) == event


def test_only_containers_with_probes_or_a_post_start_hook_are_probed() -> None:
    assert not has_probe_or_hook(container())
    assert not has_probe_or_hook(container(lifecycle={"preStop": {"sleep": {"seconds": 1}}}))
    assert has_probe_or_hook(container(lifecycle={"postStart": {"sleep": {"seconds": 1}}}))
    assert has_probe_or_hook(container(readinessProbe={"tcpSocket": {"port": 1}}))


def test_a_new_run_is_not_ready_for_anything_that_will_be_probed() -> None:
    asked = {"tcpSocket": {"port": 1}}

    assert initial_status(container(livenessProbe=asked)) == ProbeStatus()
    assert initial_status(container(readinessProbe=asked)) == ProbeStatus(is_ready=False)
    assert initial_status(container(startupProbe=asked)) == ProbeStatus(is_up=False)


def test_a_probe_may_override_the_grace_period_of_its_pod() -> None:
    described = container(livenessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 3})

    assert probe_grace_seconds(described, "liveness probe") == 3
    assert probe_grace_seconds(described, "startup probe") is None
    assert probe_grace_seconds(described, "") is None
