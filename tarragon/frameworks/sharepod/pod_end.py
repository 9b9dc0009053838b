"""Judges the end of a SharePod's pod as Kubernetes does: by its phase, whichever of its containers has ended."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.frameworks.plugin import JobObservation, StateReview
from tarragon.job.replica_state import PodOutcome, PodTermination, ReplicaAction, ReplicaState, unjudged
from tarragon.kube.core import ContainerStatus


def review_pod_end(observation: JobObservation, _: dt.datetime) -> StateReview:
    return StateReview(states={replica: _reviewed(state) for replica, state in observation.replica_states.items()})


def _reviewed(state: ReplicaState) -> ReplicaState:
    ending = state.termination
    if ending is None or ending.outcome is PodOutcome.DISRUPTED:
        return state
    if not state.pod.is_finished:
        return unjudged(state)  # Other containers of the pod go on.
    if state.pod.status.phase == "Succeeded":
        return state
    # The kubelet has restarted all containers that the policy lets it restart: no other pod would do better.
    return replace(state, termination=_failure(state, ending), action=ReplicaAction.FAIL_JOB)


def _failure(state: ReplicaState, ending: PodTermination) -> PodTermination:
    """How the pod failed: by its main container, or else by the first other one that did."""
    if ending.outcome is PodOutcome.FAILED:
        return ending
    pod = state.pod.status
    failed = next(filter(_has_failed, pod.container_statuses), None)
    end = failed.state.terminated if failed is not None else None
    if failed is None or end is None:
        return PodTermination(outcome=PodOutcome.FAILED, reason=pod.reason, message=pod.message)
    return PodTermination(
        outcome=PodOutcome.FAILED,
        exit_code=end.exit_code,
        reason=pod.reason or end.reason,
        message=f"container {failed.name}: {end.message}".removesuffix(": "),
        finished_at=end.finished_at,
    )


def _has_failed(container: ContainerStatus) -> bool:
    return container.state.terminated is not None and container.state.terminated.exit_code != 0
