"""How urgent a job is, by the PriorityClasses of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.job.model import TrainingJob
from tarragon.kube.core import PriorityClass
from tarragon.kube.meta import Key

NEVER = "Never"


@dataclass(frozen=True, slots=True)
class Urgency:
    """`preempts`: whether it may take the places of those that are less urgent."""

    priority: int = 0
    preempts: bool = True


def urgency(job: TrainingJob, classes: Mapping[Key, PriorityClass]) -> Urgency:
    """By the class that the job names, else by the highest that its pods name, else by the cluster's default.

    A name that no class has counts as none: the API server refuses such pods, and says why.
    """
    named = [job.run_policy.scheduling.priority_class] if job.run_policy.scheduling.priority_class else _of_pods(job)
    found = [classes[Key("", name)] for name in named if Key("", name) in classes]
    if not named:
        found = [one for one in classes.values() if one.global_default]
    if not found:
        return Urgency()
    highest = max(found, key=lambda one: (one.value, one.metadata.name))
    return Urgency(highest.value, highest.preemption_policy != NEVER)


def _of_pods(job: TrainingJob) -> list[str]:
    named = (group.template.get("spec", {}).get("priorityClassName") for group in job.groups)
    return [str(name) for name in named if name]
