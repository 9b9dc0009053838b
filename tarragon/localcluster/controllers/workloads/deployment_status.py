"""The status of a Deployment: counts, availability and progress. Pure."""

from __future__ import annotations

import datetime as dt

from tarragon.base.time_arithmetic import add_seconds
from tarragon.kube.codec import parse_time
from tarragon.localcluster.controllers.workloads.conditions import found, with_condition, without
from tarragon.localcluster.controllers.workloads.model import Deployment, Json
from tarragon.localcluster.controllers.workloads.rollout import Rollout

_STAMP = "lastUpdateTime"


def status(family: Rollout, collisions: int, made: str, now: dt.datetime) -> Json:
    """The new status. `made` is the name of the replica set that this reconciliation created, or empty."""
    counts = _counts(family)
    before = family.deployment.status
    conditions: list[Json] = list(before.get("conditions") or [])
    conditions = with_condition(conditions, _availability(family, counts), now, _STAMP)
    conditions = _with_failure(family, conditions, now)
    conditions = _with_progress(family, counts, made, conditions, now)
    return {
        "observedGeneration": family.deployment.metadata.generation,
        **{field: number or None for field, number in counts.items()},
        "collisionCount": collisions or None,
        "conditions": conditions,
    }


def is_complete(deployment: Deployment, counts: Json) -> bool:
    """Whether all replicas have the new template and are available, and no old pod is left."""
    wanted = deployment.spec.replicas
    return all((counts.get(field) or 0) == wanted for field in ("updatedReplicas", "replicas", "availableReplicas"))


def next_look(deployment: Deployment, status: Json, now: dt.datetime) -> float | None:
    """Seconds until the progress deadline of a rollout passes; None when it has none."""
    progressing = found(status["conditions"], "Progressing")
    if progressing is None or progressing["reason"] in {"NewReplicaSetAvailable", "ProgressDeadlineExceeded"}:
        return None
    due = add_seconds(parse_time(progressing[_STAMP]), deployment.spec.progress_deadline_seconds)
    return max(1.0, (due - now).total_seconds() + 1)


def _counts(family: Rollout) -> dict[str, int]:
    available = sum(each.count("availableReplicas") for each in family.all)
    return {
        "replicas": sum(each.count("replicas") for each in family.all),
        "updatedReplicas": family.new.count("replicas") if family.new is not None else 0,
        "readyReplicas": sum(each.count("readyReplicas") for each in family.all),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(each.spec.replicas for each in family.all) - available),
    }


def _availability(family: Rollout, counts: dict[str, int]) -> Json:
    is_enough = counts["availableReplicas"] >= family.deployment.spec.replicas - family.limits[1]
    return {
        "type": "Available",
        "status": "True" if is_enough else "False",
        "reason": "MinimumReplicasAvailable" if is_enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if is_enough else 'does not have'} minimum availability.",
    }


def _with_failure(family: Rollout, conditions: list[Json], now: dt.datetime) -> list[Json]:
    """Copy ReplicaFailure from the new replica set, or from an old one while there is no new one."""
    for each in [family.new] if family.new is not None else family.old:
        failure = found(each.status.get("conditions") or [], "ReplicaFailure")
        if failure is not None:
            wanted = {field: failure[field] for field in ("type", "status", "reason", "message")}
            return with_condition(conditions, wanted, now, _STAMP)
    return without(conditions, "ReplicaFailure")


def _with_progress(
    family: Rollout, counts: dict[str, int], made: str, conditions: list[Json], now: dt.datetime
) -> list[Json]:
    if family.deployment.spec.progress_deadline_seconds >= 2**31 - 1:
        return without(conditions, "Progressing")
    before = found(conditions, "Progressing")
    name = family.new.metadata.name if family.new is not None else made
    subject = f'ReplicaSet "{name}"' if name else f'Deployment "{family.deployment.metadata.name}"'
    if family.deployment.spec.paused:
        return with_condition(conditions, _progress("Unknown", "DeploymentPaused", "Deployment is paused"), now, _STAMP)
    if before is not None and before["reason"] == "DeploymentPaused":
        words = "Deployment is resumed"
        return with_condition(conditions, _progress("Unknown", "DeploymentResumed", words), now, _STAMP)
    if made:
        wanted = _progress("True", "NewReplicaSetCreated", f'Created new replica set "{made}"')
        return with_condition(conditions, wanted, now, _STAMP)
    is_old_news = before is not None and before["reason"] == "NewReplicaSetAvailable"
    if is_complete(family.deployment, counts) and (not is_old_news or _names(before, name)):
        wanted = _progress("True", "NewReplicaSetAvailable", f"{subject} has successfully progressed.")
        return with_condition(conditions, wanted, now, _STAMP)
    if _moved(family, counts) or (is_old_news and not _names(before, name)):
        wanted = _progress("True", "ReplicaSetUpdated", f"{subject} is progressing.")
        return [*without(conditions, "Progressing"), _with_new_times(before, wanted, now)]
    if before is not None and not is_old_news and _is_late(family.deployment, before, now):
        wanted = _progress("False", "ProgressDeadlineExceeded", f"{subject} has timed out progressing.")
        return with_condition(conditions, wanted, now, _STAMP)
    return conditions


def _progress(status: str, reason: str, message: str) -> Json:
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}


def _names(condition: Json | None, name: str) -> bool:
    return condition is not None and f'"{name}"' in condition["message"]


def _with_new_times(before: Json | None, wanted: Json, now: dt.datetime) -> Json:
    """The condition with new times although reason and status are the same: the deadline counts from each progress."""
    return with_condition([{**before, "reason": ""}] if before is not None else [], wanted, now, _STAMP)[0]


def _moved(family: Rollout, counts: dict[str, int]) -> bool:
    def of(status: Json, field: str) -> int:
        return int(status.get(field) or 0)

    before = family.deployment.status
    return (
        counts["updatedReplicas"] > of(before, "updatedReplicas")
        or counts["replicas"] - counts["updatedReplicas"] < of(before, "replicas") - of(before, "updatedReplicas")
        or counts["readyReplicas"] > of(before, "readyReplicas")
        or counts["availableReplicas"] > of(before, "availableReplicas")
    )


def _is_late(deployment: Deployment, progressing: Json, now: dt.datetime) -> bool:
    if progressing["reason"] == "ProgressDeadlineExceeded":
        return False
    waited = now - parse_time(progressing[_STAMP])
    return waited > dt.timedelta(seconds=deployment.spec.progress_deadline_seconds)
