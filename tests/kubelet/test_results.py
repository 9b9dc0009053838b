"""What tries of a probe add up to."""

from __future__ import annotations

import pytest

from tarragon.localcluster.kubelet.base.spec import Probe
from tarragon.localcluster.kubelet.probes.pod_lifecycle import Fitness
from tarragon.localcluster.kubelet.probes.results import Finding, Kind, Tally, grace_of, is_attended, newborn, told
from tests.kubelet.builders import container

WELL, UNWELL, UNTRIED = Finding(is_well=True), Finding(is_well=False), Finding(is_well=None)


def states(*findings: Finding, state: bool | None = None, success: int = 1, failure: int = 3) -> list[bool | None]:
    probe = Probe(success_threshold=success, failure_threshold=failure)
    tally, found = Tally(state=state), []
    for finding in findings:
        tally = tally.after(finding, probe)
        found.append(tally.state)
    return found


def test_so_many_failures_in_a_row_are_one() -> None:
    assert states(UNWELL, UNWELL, UNWELL, state=True) == [True, True, False]
    assert states(UNWELL, UNWELL, WELL, UNWELL, UNWELL, UNWELL, state=True)[-2:] == [True, False]


def test_so_many_successes_in_a_row_make_one_ready() -> None:
    assert states(WELL, state=False) == [True]
    assert states(WELL, UNWELL, WELL, WELL, state=False, success=2) == [False, False, False, True]


def test_what_could_not_be_tried_does_not_count() -> None:
    assert states(UNWELL, UNTRIED, UNWELL, UNTRIED, UNWELL, state=True) == [True, True, True, True, False]


def test_a_startup_probe_says_nothing_until_it_has_succeeded_or_failed_for_good() -> None:
    assert states(UNWELL, WELL) == [None, True]
    assert states(UNWELL, UNWELL, UNWELL) == [None, None, False]


@pytest.mark.parametrize(
    ("kind", "finding", "event"),
    [
        (Kind.LIVENESS, WELL, None),
        (
            Kind.LIVENESS,
            Finding(is_well=False, words="HTTP probe failed with statuscode: 500"),
            ("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
        ),
        (Kind.READINESS, Finding(is_well=None, words="no"), ("Unhealthy", "Readiness probe errored: no")),
        (
            Kind.STARTUP,
            Finding(is_well=True, words="elsewhere", is_doubtful=True),
            ("ProbeWarning", "Startup probe warning: elsewhere"),
        ),
    ],
)
def test_events_have_a_kubelets_words(kind: Kind, finding: Finding, event: tuple[str, str] | None) -> None:
    assert told(kind, finding) == event


def test_only_who_has_probes_or_a_hook_needs_looking_after() -> None:
    assert not is_attended(container())
    assert not is_attended(container(lifecycle={"preStop": {"sleep": {"seconds": 1}}}))
    assert is_attended(container(lifecycle={"postStart": {"sleep": {"seconds": 1}}}))
    assert is_attended(container(readinessProbe={"tcpSocket": {"port": 1}}))


def test_nothing_is_taken_for_granted_that_is_going_to_be_asked() -> None:
    asked = {"tcpSocket": {"port": 1}}

    assert newborn(container(livenessProbe=asked)) == Fitness()
    assert newborn(container(readinessProbe=asked)) == Fitness(is_ready=False)
    assert newborn(container(startupProbe=asked)) == Fitness(is_up=False)


def test_a_probe_may_allow_another_grace_than_its_pod() -> None:
    described = container(livenessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 3})

    assert grace_of(described, "liveness probe") == 3
    assert grace_of(described, "startup probe") is None
    assert grace_of(described, "") is None
