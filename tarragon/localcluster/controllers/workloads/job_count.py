"""Counts the pods of a Job exactly once, even if the controller is killed or pods are deleted meanwhile. Pure.

A pod keeps a finalizer until it is counted. Counting takes three writes, and the controller may be killed after each:
the uid of a finished pod is added to the status as uncounted, the finalizer is removed from the pod, and the next
reconciliation replaces the uid by an increment of the count. A success in an indexed Job is recorded as its index
instead: a set of indexes counts none twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.index_ranges import format_ranges, parse_ranges
from tarragon.localcluster.controllers.workloads.job_failure import failure_action
from tarragon.localcluster.controllers.workloads.model import Job, Json
from tarragon.localcluster.controllers.workloads.pods import Pod

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
MAX_INDEXES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """`new_succeeded` and `new_failed` are uids of uncounted pods. Pods in `release` can lose their finalizer."""

    succeeded: int
    failed: int
    new_succeeded: Sequence[str]
    new_failed: Sequence[str]
    completed: frozenset[int]
    release: Sequence[Pod]

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.new_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.new_failed)

    @property
    def is_settled(self) -> bool:
        return not (self.new_succeeded or self.new_failed or self.release)

    def status(self, job: Job) -> Json:
        uncounted = {"succeeded": list(self.new_succeeded) or None, "failed": list(self.new_failed) or None}
        return {
            "succeeded": self.succeeded or None,
            "failed": self.failed or None,
            "completedIndexes": (_format_indexes(self.completed) or None) if job.spec.is_indexed else None,
            "uncountedTerminatedPods": uncounted,
        }


def count(job: Job, pods: Sequence[Pod]) -> Count:
    uncounted: Json = job.status.get("uncountedTerminatedPods") or {}
    waiting = {pod.uid: pod for pod in pods if is_tracked(pod)}
    counting = _Counting(job)
    for field in ("succeeded", "failed"):
        for uid in uncounted.get(field) or ():
            counting.take_up(field, uid, waiting.pop(uid, None))
    for pod in waiting.values():
        counting.look_at(pod)
    return counting.result()


def is_tracked(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else None


class _Counting:
    """One pass over the pods."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers = {field: int(job.status.get(field) or 0) for field in ("succeeded", "failed")}
        self._uids: dict[str, list[str]] = {"succeeded": [], "failed": []}
        self._known = parse_indexes(job.status.get("completedIndexes") or "")
        self._completed = set(self._known)
        self._release: list[Pod] = []

    def take_up(self, field: str, uid: str, pod: Pod | None) -> None:
        """Count a pod that the status lists as uncounted; None if the pod is gone."""
        if pod is None:
            self._numbers[field] += 1
        else:
            self._uids[field].append(uid)
            self._release.append(pod)

    def look_at(self, pod: Pod) -> None:
        if pod.status.phase == "Succeeded":
            self._succeed(pod)
        elif has_failed(self._job, pod):
            if failure_action(self._job, pod).action == "Ignore":
                self._release.append(pod)
            else:
                self._uids["failed"].append(pod.uid)

    def _succeed(self, pod: Pod) -> None:
        if not self._job.spec.is_indexed:
            self._uids["succeeded"].append(pod.uid)
            return
        index = index_of(pod)
        if index is None or index in self._known:
            self._release.append(pod)
        elif index < (self._job.spec.completions or 0):
            self._completed.add(index)
        else:
            self._release.append(pod)

    def result(self) -> Count:
        is_indexed = self._job.spec.is_indexed
        return Count(
            succeeded=len(self._completed) if is_indexed else self._numbers["succeeded"],
            failed=self._numbers["failed"],
            new_succeeded=self._uids["succeeded"],
            new_failed=self._uids["failed"],
            completed=frozenset(self._completed),
            release=self._release,
        )


def has_failed(job: Job, pod: Pod) -> bool:
    """Whether the pod counts as failed.

    A terminating pod does, unless the Job replaces only failed pods (`podReplacementPolicy: Failed`); once the Job has
    finished, all pods that still run do.
    """
    if pod.status.phase == "Failed":
        return True
    if pod.status.phase == "Succeeded":
        return False
    # With no grace period left the kubelet has stopped the pod, and only the finalizer keeps it.
    is_over = job.spec.pod_replacement_policy != "Failed" or not pod.metadata.deletion_grace_period_seconds
    return job.is_finished or (pod.metadata.is_being_deleted and is_over)


def parse_indexes(text: str) -> frozenset[int]:
    """Completion indexes as a Job's status has them."""
    return parse_ranges(text, MAX_INDEXES)


def _format_indexes(indexes: frozenset[int]) -> str:
    # As in Kubernetes, two consecutive indexes are not a range.
    return format_ranges(indexes, shortest_range=3)
