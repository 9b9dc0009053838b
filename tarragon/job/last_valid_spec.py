"""Encodes and decodes the last valid spec of a job, without its templates, for use while an edit is invalid.

With it the operator still judges and counts ends, cleans up, and enforces limits and timers. It can't create pods,
because that takes a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tarragon.job.annotations import (
    CHECKPOINT_SECONDS_ANNOTATION,
    RESIZE_ANNOTATION,
    RESTART_ANNOTATION,
    RETRYABLE_EXIT_CODES_ANNOTATION,
)
from tarragon.job.model import (
    CleanPodPolicy,
    ElasticPolicy,
    Replica,
    ReplicaRole,
    ReplicaSpec,
    ReplicaType,
    RestartPolicy,
    RunPolicy,
    SuccessPolicy,
    TrainingJob,
    parse_replica_type,
)
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.meta import Json, Key

ANNOTATIONS = (RESTART_ANNOTATION, RESIZE_ANNOTATION, CHECKPOINT_SECONDS_ANNOTATION, RETRYABLE_EXIT_CODES_ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """The parts of a job that no edit can change."""

    kind: str
    api_version: str
    generation: str
    key: Key
    uid: str


def encode_job(job: TrainingJob) -> dict[str, Json]:
    """Encode the job, without the fields that are not set."""
    policy = job.run_policy
    fields: dict[str, Json] = {
        "replicas": {str(group.type): _group_fields(group) for group in job.replica_specs},
        "cleanPods": policy.clean_pod_policy.value,
        "ttl": policy.ttl_seconds_after_finished,
        "deadline": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
        "suspend": policy.suspend or None,
        "success": job.success_policy.value or None,
        "elastic": None
        if job.elastic_policy is None
        else [job.elastic_policy.min_replicas, job.elastic_policy.max_replicas],
        "runtimeId": job.runtime_id or None,
        "decider": None if job.named_chief is None else [str(job.named_chief.type), job.named_chief.index],
        "chiefPolicy": None if job.chief_restart_policy is None else job.chief_restart_policy.value,
        "annotations": {name: job.annotations[name] for name in ANNOTATIONS if name in job.annotations} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def decode_job(found: Json, identity: JobIdentity, roles: Mapping[ReplicaType, ReplicaRole]) -> TrainingJob | None:
    """Decode what `encode_job` wrote; None for anything else, because users can edit the status.

    `roles` are those of the job's framework.
    """
    if not isinstance(found, Mapping):
        return None
    try:
        return _job(found, identity, roles)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def with_suspend(job: TrainingJob, spec: Json) -> TrainingJob:
    """Apply `suspend` of the invalid edit if it is a boolean, so that a queueing system can still stop the job."""
    policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
    requested = policy.get("suspend") if isinstance(policy, Mapping) else None
    suspend = requested if isinstance(requested, bool) else job.run_policy.suspend
    return replace(job, run_policy=replace(job.run_policy, suspend=suspend))


def _group_fields(group: ReplicaSpec) -> dict[str, Json]:
    fields: dict[str, Json] = {"wish": group.replicas, "policy": group.restart_policy.value}
    if group.may_fail:
        fields["mayFail"] = True
    scheduler = group.template.get("spec", {}).get("schedulerName")
    return fields if scheduler is None else {**fields, "scheduler": scheduler}


def _job(found: Mapping[str, Json], identity: JobIdentity, roles: Mapping[ReplicaType, ReplicaRole]) -> TrainingJob:
    elastic, decider, chief_policy = found.get("elastic"), found.get("decider"), found.get("chiefPolicy")
    annotations = found.get("annotations", {})
    groups = tuple(_group(kind, fields, roles) for kind, fields in found["replicas"].items())
    if found.get("sparse") is True:
        # Earlier versions recorded enableDynamicWorker instead of `mayFail`; an upgrade must not end such a job.
        groups = tuple(replace(group, may_fail=group.role.is_elastic) for group in groups)
    return TrainingJob(
        kind=identity.kind,
        api_version=identity.api_version,
        dialect=identity.generation,
        key=identity.key,
        uid=identity.uid,
        creation_time=None,
        replica_specs=groups,
        run_policy=RunPolicy(
            clean_pod_policy=CleanPodPolicy(found["cleanPods"]),
            ttl_seconds_after_finished=_limit(found.get("ttl")),
            active_deadline_seconds=_limit(found.get("deadline")),
            backoff_limit=_limit(found.get("backoffLimit")),
            suspend=found.get("suspend") is True,
        ),
        success_policy=SuccessPolicy(found.get("success", "")),
        elastic_policy=None if elastic is None else ElasticPolicy(_number(elastic[0]), _number(elastic[1])),
        runtime_id=str(found.get("runtimeId", "")),
        named_chief=None if decider is None else Replica(parse_replica_type(decider[0]), _number(decider[1])),
        chief_restart_policy=None if chief_policy is None else RestartPolicy(chief_policy),
        annotations={name: str(annotations[name]) for name in ANNOTATIONS if name in annotations},
    )


def _group(kind: str, fields: Mapping[str, Json], roles: Mapping[ReplicaType, ReplicaRole]) -> ReplicaSpec:
    scheduler, replica_type = fields.get("scheduler"), parse_replica_type(kind)
    return ReplicaSpec(
        type=replica_type,
        role=roles[replica_type],
        replicas=_number(fields["wish"]),
        restart_policy=RestartPolicy(fields["policy"]),
        template={} if scheduler is None else {"spec": {"schedulerName": str(scheduler)}},
        may_fail=fields.get("mayFail") is True,
    )


def _limit(found: Json) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ValueError(f"{found!r} is not a limit")
    return found


def _number(found: Json) -> int:
    number = _limit(found)
    if number is None or number > MAX_REPLICAS:
        raise ValueError(f"{found!r} is not a number of replicas")
    return number
