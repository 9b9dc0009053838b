"""Finds what a job loses in a conversion, by comparing both manifests as their dialects decode them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, SUSPEND_PATH, PolicyField
from tarragon.frameworks.plugin import ConversionLoss, Dialect, Manifest
from tarragon.job.model import SchedulingPolicy, TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedJob:
    """A manifest and the job that its dialect decodes from it. `policies` are those that its generation has."""

    manifest: Manifest
    job: TrainingJob
    dialect: Dialect
    policies: frozenset[str]

    @property
    def name(self) -> str:
        return self.dialect.name

    @property
    def has_limit(self) -> bool:
        return PolicyField.BACKOFF_LIMIT in self.policies


LossFinder = Callable[[DecodedJob, DecodedJob], Iterator[Problem]]


def find_losses(topics: Mapping[str, LossFinder], before: DecodedJob, after: DecodedJob) -> Iterator[ConversionLoss]:
    for topic, find in topics.items():
        for problem in find(before, after):
            yield ConversionLoss(topic=topic, problem=problem)


def unsupported(path: str, after: DecodedJob, instead: str, remedy: str) -> Problem:
    return Problem(path, f"{after.name} does not support it: {instead}", remedy)


def suspension(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    if before.job.run_policy.suspend and not after.job.run_policy.suspend:
        yield unsupported(SUSPEND_PATH, after, "the job starts at once", "submit it when it may run")


def limits(newest: str) -> LossFinder:
    """The finder of lost limits. `newest` names the generation that has all of them."""

    def find(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
        old, new = before.job.run_policy, after.job.run_policy
        nested = before.manifest["spec"].get(RUN_POLICY) or {}
        for name, was, becomes, instead in (
            (
                "activeDeadlineSeconds",
                old.active_deadline_seconds,
                new.active_deadline_seconds,
                "the job may run forever",
            ),
            ("backoffLimit", old.backoff_limit, new.backoff_limit, "the job may restart forever"),
            (
                "ttlSecondsAfterFinished",
                old.ttl_seconds_after_finished,
                new.ttl_seconds_after_finished,
                "a finished job is kept",
            ),
            ("cleanPodPolicy", old.clean_pod_policy, new.clean_pod_policy, f"it is {new.clean_pod_policy}"),
        ):
            if was != becomes:
                path = f"spec.{RUN_POLICY}.{name}" if name in nested else f"spec.{name}"
                yield unsupported(path, after, instead, f"use a generation that has it: {newest}")

    return find


def managed_by_and_scheduling(before: DecodedJob, after: DecodedJob) -> Iterator[Problem]:
    old, new = before.job.run_policy, after.job.run_policy
    if old.managed_by != new.managed_by:
        instead = f"Tarragon runs the job instead of {old.managed_by}"
        yield unsupported(f"spec.{RUN_POLICY}.{PolicyField.MANAGED_BY}", after, instead, "")
    if old.scheduling_policy != new.scheduling_policy and old.scheduling_policy != SchedulingPolicy():
        path = f"spec.{RUN_POLICY}.{PolicyField.SCHEDULING}"
        yield unsupported(path, after, "the job is queued like any other", "set priorityClassName in the templates")
