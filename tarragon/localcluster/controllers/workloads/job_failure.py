"""Evaluates the podFailurePolicy of a Job for a failed pod. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tarragon.localcluster.controllers.workloads.model import Job, Json
from tarragon.localcluster.controllers.workloads.pods import ContainerStatus, Pod

Action = Literal["FailJob", "Ignore", "Count"]


@dataclass(frozen=True, slots=True)
class FailureAction:
    """The action for a failed pod. `message` is the Job's, if the action fails the Job."""

    action: Action = "Count"
    message: str = ""


COUNT = FailureAction()


def failure_action(job: Job, pod: Pod) -> FailureAction:
    """The action of the first rule that matches the pod; the default is to count the failure."""
    rules: list[Json] = (job.spec.pod_failure_policy or {}).get("rules") or []
    if pod.status.phase != "Failed":
        return COUNT
    for index, rule in enumerate(rules):
        words = _by_exit_code(rule.get("onExitCodes"), pod) or _by_condition(rule.get("onPodConditions"), pod)
        if words:
            return FailureAction(rule["action"], f"{words} matching {rule['action']} rule at index {index}")
    return COUNT


def _by_exit_code(wanted: Json | None, pod: Pod) -> str:
    if wanted is None:
        return ""
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if wanted.get("containerName") in {None, "", each.name} and _matches(wanted, each):
            code = each.state.terminated.exit_code if each.state.terminated else 0
            return f"Container {each.name} for pod {pod.metadata.key} failed with exit code {code}"
    return ""


def _matches(wanted: Json, status: ContainerStatus) -> bool:
    if status.state.terminated is None or status.state.terminated.exit_code == 0:
        return False
    return (status.state.terminated.exit_code in wanted["values"]) is (wanted["operator"] == "In")


def _by_condition(wanted: list[Json] | None, pod: Pod) -> str:
    for pattern in wanted or ():
        kind, status = pattern["type"], pattern.get("status") or "True"
        if any(each.type == kind and each.status == status for each in pod.status.conditions):
            return f"Pod {pod.metadata.key} has condition {kind}"
    return ""
