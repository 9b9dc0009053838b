"""Encodes and decodes `status.tarragon`, compactly enough for ten thousand replicas.

Decoding trusts nothing, because users can edit the status.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import msgspec

from tarragon.base.index_ranges import format_ranges, parse_ranges
from tarragon.base.memoized import Memoized
from tarragon.job import training_operator_status
from tarragon.job.model import Replica, ReplicaType, parse_replica_type
from tarragon.job.phase import Phase
from tarragon.job.progress import TRAINER_STATUS, decode_progress
from tarragon.job.replica_ranges import MAX_REPLICAS, format_replicas, parse_replicas
from tarragon.job.restart_encoding import decode_restarts, encode_restarts
from tarragon.job.status import (
    Admission,
    AdmissionBackoff,
    DiscardedAdmission,
    FirstFailure,
    GangRound,
    JobStatus,
    Obstacle,
    Provenance,
    WaitReason,
)
from tarragon.job.status_reason import reason_of
from tarragon.job.work import JobWork, decode_work, encode_work
from tarragon.kube.codec import format_micro_time, format_time
from tarragon.kube.meta import CustomObject, Json

T = TypeVar("T")

MAX_MESSAGE_LENGTH = 2048
"""The maximum number of characters of a message in the status."""

MAX_SHARED_REPLICAS = 256
"""Statuses that name more replicas are decoded anew for each reader."""

WHOLE_GANG: Mapping[str, Json] = MappingProxyType({"whole": True})
"""The change of the encoded gang round by which it becomes complete."""

_FIELDS = frozenset(
    {
        "accepted",
        "admission",
        "failure",
        "finished",
        "gang",
        "generation",
        "imagePullErrors",
        "message",
        "observedGeneration",
        "obstacle",
        "progress",
        "provenance",
        "ready",
        "reason",
        "record",
        "replicas",
        "restarts",
        "selector",
        "size",
        "state",
        "work",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSummary:
    """The part of `status.tarragon` for humans and the scale subresource. The operator never decides on it."""

    generation: str
    observed_generation: int
    state: str
    total: int
    workers: int
    selector: str


def display_state(status: JobStatus, *, waits: bool) -> str:
    """The state of a job for humans. `waits` says that the gang needs an admission and has none."""
    if status.phase.is_final or status.phase is Phase.SUSPENDED:
        return status.phase.value
    if waits:
        return "Waiting"
    return "Starting" if status.phase is Phase.CREATED else status.phase.value


def encode_status(status: JobStatus, summary: StatusSummary) -> dict[str, Json]:
    """Encode everything but the admission, which the scheduler writes, and the progress."""
    fields: dict[str, Json] = {
        "generation": summary.generation,
        "observedGeneration": summary.observed_generation,
        "state": summary.state,
        "ready": f"{status.running_replicas}/{summary.total}",
        "replicas": summary.workers,
        "selector": summary.selector,
        "restarts": encode_restarts(status.restarts, status.total_restarts),
    }
    why = reason_of(status)
    if why.reason:
        fields |= {"reason": why.reason, "message": why.message}
    maps = {
        "finished": format_replicas(status.succeeded_replicas),
        "size": {str(kind): number for kind, number in status.reported_size.items()},
        "imagePullErrors": {str(kind): error for kind, error in status.image_pull_errors.items()},
        "work": encode_work(status.work),
    }
    fields |= {name: found for name, found in maps.items() if found}
    if status.obstacle is not None:
        fields["obstacle"] = {
            "since": format_micro_time(status.obstacle.since),
            "reason": status.obstacle.reason,
            "message": status.obstacle.message[:MAX_MESSAGE_LENGTH],
        }
    if status.gang_round is not None:
        fields["gang"] = _gang_fields(status.gang_round)
    if status.first_failure is not None:
        fields["failure"] = _failure_fields(status.first_failure)
    if status.provenance is not None:
        fields["provenance"] = _provenance_fields(status.provenance)
    return fields


def unknown_fields(ours: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of `status.tarragon` that this version does not know: a later version wrote them and may return."""
    return {name: value for name, value in ours.items() if name not in _FIELDS}


def encode_admission(admission: Admission) -> dict[str, Json]:
    """Encode an admission. Replicas are grouped by type and node, which keeps large gangs small."""
    fields: dict[str, Json] = {"queued": format_micro_time(admission.queued_at)}
    if admission.admitted_at is not None:
        fields["admitted"] = format_micro_time(admission.admitted_at)
    if admission.size:
        fields["size"] = {str(kind): number for kind, number in admission.size.items()}
    if admission.nodes:
        fields["nodes"] = _placement_fields(admission.nodes)
    if admission.wait is not None:
        fields["wait"] = _wait_fields(admission.wait)
    if admission.backoff is not None:
        fields["retry"] = {
            "count": admission.backoff.attempts,
            "after": format_micro_time(admission.backoff.not_before),
        }
    if admission.discarded is not None:
        message = admission.discarded.message[:MAX_MESSAGE_LENGTH]
        fields["refused"] = {"at": format_micro_time(admission.discarded.at), "message": message}
    return {**fields, **_resize_fields(admission)}


def raw_admission(status: Json) -> dict[str, Json]:
    """The undecoded admission of a status, to compute an exact patch."""
    tarragon = status.get("tarragon") if isinstance(status, dict) else None
    recorded = tarragon.get("admission") if isinstance(tarragon, dict) else None
    return recorded if isinstance(recorded, dict) else {}


def _resize_fields(admission: Admission) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    if admission.resized_at is not None:
        fields["resized"] = format_micro_time(admission.resized_at)
    if admission.resize_reason:
        fields["reason"] = admission.resize_reason
    if admission.requested_size:
        fields["wish"] = {str(kind): number for kind, number in admission.requested_size.items()}
    if admission.reassigned_at:
        fields["moves"] = [format_time(at) for at in admission.reassigned_at]
    return fields


def status_of(found: CustomObject) -> Mapping[str, Json]:
    """The status as it was written, by any operator; empty if it is none."""
    return found.status if isinstance(found.status, Mapping) else {}


def recorded_status(found: CustomObject) -> JobStatus:
    """The decoded status of a job. Readers of equal statuses may share one value."""
    return _decode_memoized(bytes(found.raw_status))


def decode_status(raw: Json) -> JobStatus:
    """Decode a whole status of any generation. Invalid fields count as absent; never raises."""
    fields = raw if isinstance(raw, Mapping) else {}
    ours = fields.get("tarragon")
    ours = ours if isinstance(ours, Mapping) else {}

    def read(name: str, reader: Callable[[Json], T], absent: T) -> T:
        found = ours.get(name)
        if found is None:
            return absent
        try:
            return reader(found)
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
            return absent

    # Generations before v1alpha2 have no fields for these; there they are in `record`.
    shown = ours["record"] if isinstance(ours.get("record"), Mapping) else fields
    conditions = training_operator_status.decode_conditions(shown.get("conditions"))
    return JobStatus(
        phase=training_operator_status.phase_of(
            conditions, ours.get("state", training_operator_status.final_state(fields))
        ),
        conditions=conditions,
        replica_statuses=training_operator_status.decode_replica_statuses(
            shown.get("replicaStatuses") or shown.get("tfReplicaStatuses")
        ),
        start_time=training_operator_status.decode_time(shown.get("startTime")),
        completion_time=training_operator_status.decode_time(shown.get("completionTime")),
        admission=read("admission", _read_admission, None),
        restarts=read("restarts", decode_restarts, {}),
        succeeded_replicas=read("finished", parse_replicas, frozenset()),
        running_replicas=read("ready", _read_ready, 0),
        obstacle=read("obstacle", _read_obstacle, None),
        image_pull_errors=read("imagePullErrors", _read_image_pull_errors, {}),
        first_failure=read("failure", _read_failure, None),
        provenance=read("provenance", _read_provenance, None),
        gang_round=read("gang", _read_gang, None),
        work=read("work", decode_work, JobWork()),
        progress=read("progress", lambda found: decode_progress(found, fields.get(TRAINER_STATUS)), None),
        reported_size=read("size", _read_size, {}),
    )


def _decode_raw(raw_status: bytes) -> JobStatus:
    return decode_status(CustomObject(raw_status=msgspec.Raw(raw_status)).status)


def _names_few_replicas(status: JobStatus) -> bool:
    """Whether the status takes little memory. A few bytes may name a hundred thousand replicas."""
    placed = 0 if status.admission is None else len(status.admission.nodes)
    return placed + len(status.restarts) + len(status.succeeded_replicas) <= MAX_SHARED_REPLICAS


_decode_memoized = Memoized(_decode_raw, _names_few_replicas)


def _placement_fields(nodes: Mapping[Replica, str]) -> dict[str, dict[str, str]]:
    found: dict[ReplicaType, dict[str, list[int]]] = {}
    for replica, node in nodes.items():
        found.setdefault(replica.type, {}).setdefault(node, []).append(replica.index)
    return {
        str(kind): {node: format_ranges(found[kind][node]) for node in sorted(found[kind])} for kind in sorted(found)
    }


def _read_admission(found: Json) -> Admission:
    wait = found.get("wait")
    admitted = found.get("admitted")
    retry = found.get("retry")
    resized = found.get("resized")
    refused = found.get("refused")
    return Admission(
        queued_at=_time(found["queued"]),
        admitted_at=None if admitted is None else _time(admitted),
        size=_read_size(found.get("size", {})),
        nodes={
            Replica(parse_replica_type(kind), index): str(node)
            for kind, placed in found.get("nodes", {}).items()
            for node, text in placed.items()
            for index in sorted(parse_ranges(text, MAX_REPLICAS))
        },
        wait=None if wait is None else _read_wait(wait),
        backoff=None
        if retry is None
        else AdmissionBackoff(attempts=_number(retry["count"]), not_before=_time(retry["after"])),
        resized_at=None if resized is None else _time(resized),
        resize_reason=str(found.get("reason", "")),
        requested_size=_read_size(found.get("wish", {})),
        reassigned_at=tuple(_time(at) for at in found.get("moves", [])),
        discarded=None if refused is None else _read_refused(refused),
    )


def _wait_fields(wait: WaitReason) -> dict[str, Json]:
    fields: dict[str, Json] = {"code": wait.code, "message": wait.message}
    return {**fields, "cause": wait.cause} if wait.cause else fields


def _read_wait(found: Json) -> WaitReason:
    return WaitReason(code=str(found["code"]), message=str(found.get("message", "")), cause=str(found.get("cause", "")))


def _read_refused(found: Json) -> DiscardedAdmission:
    return DiscardedAdmission(at=_time(found["at"]), message=str(found.get("message", "")))


def _read_size(found: Json) -> dict[ReplicaType, int]:
    return {parse_replica_type(kind): _number(number) for kind, number in found.items()}


def _read_image_pull_errors(found: Json) -> dict[ReplicaType, str]:
    return {parse_replica_type(kind): str(error) for kind, error in found.items()}


def _read_obstacle(found: Json) -> Obstacle:
    return Obstacle(since=_time(found["since"]), reason=str(found["reason"]), message=str(found.get("message", "")))


def _gang_fields(gang: GangRound) -> dict[str, Json]:
    size = {str(kind): number for kind, number in gang.size.items()}
    fields: dict[str, Json] = {"round": gang.number, "size": size, "whole": gang.was_complete}
    return {**fields, "saves": True} if gang.may_checkpoint else fields


def _read_gang(found: Json) -> GangRound:
    size = _read_size(found.get("size", {}))
    saves = found.get("saves") is True
    return GangRound(
        number=_number(found["round"]), size=size, was_complete=found.get("whole") is True, may_checkpoint=saves
    )


def _failure_fields(failure: FirstFailure) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "replica": {"type": str(failure.replica.type), "index": failure.replica.index},
        "reason": failure.reason,
        "message": failure.message[-MAX_MESSAGE_LENGTH:],
        "at": format_time(failure.at),
    }
    return fields if failure.exit_code is None else {**fields, "exitCode": failure.exit_code}


def _read_failure(found: Json) -> FirstFailure:
    replica = found["replica"]
    code = found.get("exitCode")
    return FirstFailure(
        replica=Replica(parse_replica_type(replica["type"]), _number(replica["index"])),
        exit_code=None if code is None else _number(code),
        reason=str(found.get("reason", "")),
        message=str(found.get("message", "")),
        at=_time(found["at"]),
    )


def _provenance_fields(provenance: Provenance) -> dict[str, Json]:
    fields: dict[str, Json] = {"manifest": provenance.manifest_digest, "operator": provenance.operator_version}
    return {**fields, "images": dict(sorted(provenance.image_digests.items()))} if provenance.image_digests else fields


def _read_provenance(found: Json) -> Provenance:
    images = found.get("images", {})
    return Provenance(
        manifest_digest=str(found["manifest"]),
        operator_version=str(found["operator"]),
        image_digests={str(image): str(digests) for image, digests in images.items()},
    )


def _read_ready(found: Json) -> int:
    return int(found.partition("/")[0])


def _time(found: Json) -> dt.datetime:
    time = training_operator_status.decode_time(found)
    if time is None:
        raise ValueError(f"{found!r} is not a time")
    return time


def _number(found: Json) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ValueError(f"{found!r} is not a number")
    if found > MAX_REPLICAS:
        raise ValueError(f"more than {MAX_REPLICAS} replicas")
    return found
