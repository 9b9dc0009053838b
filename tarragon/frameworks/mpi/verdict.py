"""Derives the signal of an MPIJob. The launcher decides; the job runs once the launcher and all workers do."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.verdict import failed, lost, stalled, started, succeeded
from tarragon.frameworks.plugin import JobObservation, Verdict
from tarragon.job.phase import Phase


def evaluate(observation: JobObservation) -> Verdict:
    for rule in (succeeded, failed, lost, _started, stalled):
        verdict = rule(observation)
        if verdict is not None:
            return verdict
    return Verdict(signal=None)


def _started(observation: JobObservation) -> Verdict | None:
    """The launcher is running, and so are all workers; once the job runs, only the launcher counts.

    An elastic job runs with the workers that it has.
    """
    is_elastic = observation.job.elastic_policy is not None
    states = observation.replica_states
    are_all_running = all(each in states and states[each].is_pod_running for each in observation.replicas)
    was_running = observation.status.phase is Phase.RUNNING
    return started(observation) if is_elastic or was_running or are_all_running else None
