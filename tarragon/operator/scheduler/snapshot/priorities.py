"""Resolves a job's priority and preemption policy from the cluster's PriorityClasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.job.model import TrainingJob
from tarragon.kube.core import PriorityClass
from tarragon.kube.meta import Key

NEVER = "Never"


@dataclass(frozen=True, slots=True)
class JobPriority:
    """A job's priority; `can_preempt` says whether the job may preempt lower priorities."""

    value: int = 0
    can_preempt: bool = True


def priority_of(job: TrainingJob, classes: Mapping[Key, PriorityClass]) -> JobPriority:
    """Use the job's class, else the highest class of its pod templates, else the cluster's default class.

    An unknown class name gives priority 0: the API server rejects such pods with an explanation.
    """
    names = (
        [job.run_policy.scheduling_policy.priority_class]
        if job.run_policy.scheduling_policy.priority_class
        else _template_classes(job)
    )
    matching = [classes[Key("", name)] for name in names if Key("", name) in classes]
    if not names:
        matching = [each for each in classes.values() if each.global_default]
    if not matching:
        return JobPriority()
    highest = max(matching, key=lambda each: (each.value, each.metadata.name))
    return JobPriority(highest.value, highest.preemption_policy != NEVER)


def _template_classes(job: TrainingJob) -> list[str]:
    names = (group.template.get("spec", {}).get("priorityClassName") for group in job.replica_specs)
    return [str(name) for name in names if name]
