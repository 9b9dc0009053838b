"""Encodes and decodes `status.tarragon`, compactly enough for ten thousand replicas.

Decoding trusts nothing, because users can edit the status.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tarragon.job import classic
from tarragon.job.indexes import MOST, by_type, indexes, ranges, replicas
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.reason import reason_of
from tarragon.job.restarts import read_restarts, restart_fields
from tarragon.job.status import (
    Admission,
    FirstFailure,
    Gang,
    JobStatus,
    Obstacle,
    Provenance,
    RefusedAdmission,
    Retry,
    Wait,
)
from tarragon.kube.codec import micro_timestamp, timestamp
from tarragon.kube.meta import Json

T = TypeVar("T")

LONGEST_MESSAGE = 2048
"""The maximum number of characters of a message in the status."""


_FIELDS = frozenset(
    {
        "accepted",
        "admission",
        "failure",
        "finished",
        "gang",
        "generation",
        "message",
        "observedGeneration",
        "obstacle",
        "provenance",
        "ready",
        "reason",
        "record",
        "replicas",
        "restarts",
        "selector",
        "size",
        "state",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The part of `status.tarragon` for humans and the scale subresource. The operator never decides on it."""

    generation: str
    observed_generation: int
    state: str
    total: int
    workers: int
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A decoded status, and a note for each of its fields that was invalid and counts as absent."""

    status: JobStatus
    notes: tuple[str, ...] = ()


def state_word(status: JobStatus, *, waits: bool) -> str:
    """The state of a job for humans. `waits` says that the gang needs an admission and has none."""
    if status.phase.is_final or status.phase is Phase.SUSPENDED:
        return status.phase.value
    if waits:
        return "Waiting"
    return "Starting" if status.phase is Phase.CREATED else status.phase.value


def tarragon_fields(status: JobStatus, summary: Summary) -> dict[str, Json]:
    """Encode everything but the admission, which the scheduler writes."""
    fields: dict[str, Json] = {
        "generation": summary.generation,
        "observedGeneration": summary.observed_generation,
        "state": summary.state,
        "ready": f"{status.ready}/{summary.total}",
        "replicas": summary.workers,
        "selector": summary.selector,
        "restarts": restart_fields(status.restarts),
    }
    why = reason_of(status)
    if why.word:
        fields |= {"reason": why.word, "message": why.message}
    if status.finished:
        fields["finished"] = by_type(status.finished)
    if status.size:
        fields["size"] = {kind.value: number for kind, number in status.size.items()}
    if status.obstacle is not None:
        fields["obstacle"] = {
            "since": micro_timestamp(status.obstacle.since),
            "reason": status.obstacle.reason,
            "message": status.obstacle.message[:LONGEST_MESSAGE],
        }
    if status.gang is not None:
        fields["gang"] = _gang_fields(status.gang)
    if status.first_failure is not None:
        fields["failure"] = _failure_fields(status.first_failure)
    if status.provenance is not None:
        fields["provenance"] = _provenance_fields(status.provenance)
    return fields


def foreign_fields(ours: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of `status.tarragon` that this version does not know: a later version wrote them and may return."""
    return {name: value for name, value in ours.items() if name not in _FIELDS}


def admission_fields(admission: Admission) -> dict[str, Json]:
    """Encode an admission. Replicas are grouped by type and node, which keeps large gangs small."""
    fields: dict[str, Json] = {"queued": micro_timestamp(admission.queued)}
    if admission.admitted is not None:
        fields["admitted"] = micro_timestamp(admission.admitted)
    if admission.size:
        fields["size"] = {kind.value: number for kind, number in admission.size.items()}
    if admission.nodes:
        fields["nodes"] = _placement_fields(admission.nodes)
    if admission.wait is not None:
        fields["wait"] = {"code": admission.wait.code, "message": admission.wait.message}
    if admission.retry is not None:
        fields["retry"] = {"count": admission.retry.count, "after": micro_timestamp(admission.retry.after)}
    if admission.refused is not None:
        message = admission.refused.message[:LONGEST_MESSAGE]
        fields["refused"] = {"at": micro_timestamp(admission.refused.at), "message": message}
    return {**fields, **_resize_fields(admission)}


def raw_admission(status: Json) -> dict[str, Json]:
    """The undecoded admission of a status, to compute an exact patch."""
    tarragon = status.get("tarragon") if isinstance(status, dict) else None
    recorded = tarragon.get("admission") if isinstance(tarragon, dict) else None
    return recorded if isinstance(recorded, dict) else {}


def _resize_fields(admission: Admission) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    if admission.resized is not None:
        fields["resized"] = micro_timestamp(admission.resized)
    if admission.reason:
        fields["reason"] = admission.reason
    if admission.wish:
        fields["wish"] = {kind.value: number for kind, number in admission.wish.items()}
    if admission.moves:
        fields["moves"] = [timestamp(at) for at in admission.moves]
    return fields


def read_status(raw: Json) -> JobStatus:
    """Decode a status. Invalid fields count as absent."""
    return recall(raw).status


def recall(raw: Json) -> Recalled:
    """Decode a whole status of any generation, and note invalid fields. Never raises."""
    fields = raw if isinstance(raw, Mapping) else {}
    ours = fields.get("tarragon")
    ours = ours if isinstance(ours, Mapping) else {}
    notes: list[str] = []

    def read(name: str, reader: Callable[[Json], T], absent: T) -> T:
        found = ours.get(name)
        if found is None:
            return absent
        try:
            return reader(found)
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
            notes.append(f"status.tarragon.{name} is invalid and counts as absent")
            return absent

    # Generations before v1alpha2 have no fields for these; there they are in `record`.
    shown = ours["record"] if isinstance(ours.get("record"), Mapping) else fields
    conditions = classic.conditions(shown.get("conditions"))
    status = JobStatus(
        phase=classic.phase(conditions, ours.get("state", classic.end(fields))),
        conditions=conditions,
        counts=classic.counts(shown.get("replicaStatuses") or shown.get("tfReplicaStatuses")),
        started=classic.time(shown.get("startTime")),
        completed=classic.time(shown.get("completionTime")),
        admission=read("admission", _read_admission, None),
        restarts=read("restarts", read_restarts, {}),
        finished=read("finished", replicas, frozenset()),
        ready=read("ready", _read_ready, 0),
        obstacle=read("obstacle", _read_obstacle, None),
        first_failure=read("failure", _read_failure, None),
        provenance=read("provenance", _read_provenance, None),
        gang=read("gang", _read_gang, None),
        size=read("size", _read_size, {}),
    )
    return Recalled(status=status, notes=tuple(notes))


def _placement_fields(nodes: Mapping[Replica, str]) -> dict[str, dict[str, str]]:
    found: dict[ReplicaType, dict[str, list[int]]] = {}
    for replica, node in nodes.items():
        found.setdefault(replica.type, {}).setdefault(node, []).append(replica.index)
    return {
        kind.value: {node: ranges(found[kind][node]) for node in sorted(found[kind])}
        for kind in ReplicaType
        if kind in found
    }


def _read_admission(found: Json) -> Admission:
    wait = found.get("wait")
    admitted = found.get("admitted")
    retry = found.get("retry")
    resized = found.get("resized")
    refused = found.get("refused")
    return Admission(
        queued=_time(found["queued"]),
        admitted=None if admitted is None else _time(admitted),
        size=_read_size(found.get("size", {})),
        nodes={
            Replica(ReplicaType(kind), index): str(node)
            for kind, placed in found.get("nodes", {}).items()
            for node, text in placed.items()
            for index in sorted(indexes(text))
        },
        wait=None if wait is None else Wait(code=str(wait["code"]), message=str(wait.get("message", ""))),
        retry=None if retry is None else Retry(count=_number(retry["count"]), after=_time(retry["after"])),
        resized=None if resized is None else _time(resized),
        reason=str(found.get("reason", "")),
        wish=_read_size(found.get("wish", {})),
        moves=tuple(_time(at) for at in found.get("moves", [])),
        refused=None if refused is None else _read_refused(refused),
    )


def _read_refused(found: Json) -> RefusedAdmission:
    return RefusedAdmission(at=_time(found["at"]), message=str(found.get("message", "")))


def _read_size(found: Json) -> dict[ReplicaType, int]:
    return {ReplicaType(kind): _number(number) for kind, number in found.items()}


def _read_obstacle(found: Json) -> Obstacle:
    return Obstacle(since=_time(found["since"]), reason=str(found["reason"]), message=str(found.get("message", "")))


def _gang_fields(gang: Gang) -> dict[str, Json]:
    size = {kind.value: number for kind, number in gang.size.items()}
    fields: dict[str, Json] = {"round": gang.round, "size": size, "whole": gang.is_whole}
    return {**fields, "saves": True} if gang.saves else fields


def _read_gang(found: Json) -> Gang:
    size = _read_size(found.get("size", {}))
    saves = found.get("saves") is True
    return Gang(round=_number(found["round"]), size=size, is_whole=found.get("whole") is True, saves=saves)


def _failure_fields(failure: FirstFailure) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "replica": {"type": failure.replica.type.value, "index": failure.replica.index},
        "reason": failure.reason,
        "message": failure.message[-LONGEST_MESSAGE:],
        "at": timestamp(failure.at),
    }
    return fields if failure.exit_code is None else {**fields, "exitCode": failure.exit_code}


def _read_failure(found: Json) -> FirstFailure:
    replica = found["replica"]
    code = found.get("exitCode")
    return FirstFailure(
        replica=Replica(ReplicaType(replica["type"]), _number(replica["index"])),
        exit_code=None if code is None else _number(code),
        reason=str(found.get("reason", "")),
        message=str(found.get("message", "")),
        at=_time(found["at"]),
    )


def _provenance_fields(provenance: Provenance) -> dict[str, Json]:
    fields: dict[str, Json] = {"manifest": provenance.manifest, "operator": provenance.operator}
    return {**fields, "images": dict(sorted(provenance.images.items()))} if provenance.images else fields


def _read_provenance(found: Json) -> Provenance:
    images = found.get("images", {})
    return Provenance(
        manifest=str(found["manifest"]),
        operator=str(found["operator"]),
        images={str(image): str(digests) for image, digests in images.items()},
    )


def _read_ready(found: Json) -> int:
    return int(found.partition("/")[0])


def _time(found: Json) -> dt.datetime:
    time = classic.time(found)
    if time is None:
        raise ValueError(f"{found!r} is not a time")
    return time


def _number(found: Json) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ValueError(f"{found!r} is not a number")
    if found > MOST:
        raise ValueError(f"more than {MOST} replicas")
    return found
