"""Encodes and decodes the restart records of a job. Equal records share one entry, to keep large jobs small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tarragon.job import training_operator_status
from tarragon.job.model import Replica
from tarragon.job.replica_ranges import format_replicas, parse_replicas
from tarragon.job.status import RestartRecord
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json

MAX_DETAILED_RECORDS = 500
"""Only this many replicas, those that ended last, keep all details. The others keep their counts."""


def encode_restarts(records: Mapping[Replica, RestartRecord], total: int) -> dict[str, Json]:
    """Encode the records. `total` is for the printer column only: the restarts that users see, with disruptions."""
    groups: dict[RestartRecord, list[Replica]] = {}
    for replica, record in sorted(_trimmed(records).items()):
        groups.setdefault(record, []).append(replica)
    fields: dict[str, Json] = {"total": total}
    if groups:
        fields["replicas"] = [
            {"of": format_replicas(members), **_record_fields(record)} for record, members in groups.items()
        ]
    return fields


def decode_restarts(found: Json) -> dict[Replica, RestartRecord]:
    """Decode what `encode_restarts` wrote. Raises ValueError, TypeError, KeyError or AttributeError otherwise."""
    return {
        replica: _read_record(entry)
        for entry in found.get("replicas", [])
        for replica in sorted(parse_replicas(entry["of"]))
    }


def _trimmed(records: Mapping[Replica, RestartRecord]) -> Mapping[Replica, RestartRecord]:
    if len(records) <= MAX_DETAILED_RECORDS:
        return records
    latest = set(
        sorted(records, key=lambda replica: records[replica].ended_at or training_operator_status.UNKNOWN_TIME)[
            -MAX_DETAILED_RECORDS:
        ]
    )
    return {
        replica: record
        if replica in latest
        else replace(record, exit_code=None, reason="", ended_at=None, finished_at=None, rejected_by_node="")
        for replica, record in records.items()
    }


def _record_fields(record: RestartRecord) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "count": record.pod_restarts,
        "disruptions": record.disruptions,
        "inPlace": record.container_restarts,
        "uid": record.pod_uid,
        "inPlaceOfUid": record.container_restarts_of_pod,
        "ended": record.is_pod_end_counted,
        "reason": record.reason,
        "refusals": record.rejections,
        "refusedBy": record.rejected_by_node,
    }
    nonempty = {name: value for name, value in fields.items() if value}
    if record.exit_code is not None:
        nonempty["exitCode"] = record.exit_code
    if record.ended_at is not None:
        nonempty["at"] = format_time(record.ended_at)
    if record.finished_at is not None:
        nonempty["finished"] = format_time(record.finished_at)
    return nonempty


def _read_record(entry: Mapping[str, Json]) -> RestartRecord:
    names = ("count", "disruptions", "inPlace", "inPlaceOfUid", "refusals")
    count, disruptions, in_place, of_uid, rejections = _counts(entry, names)
    code = entry.get("exitCode")
    return RestartRecord(
        pod_restarts=count,
        disruptions=disruptions,
        container_restarts=in_place,
        pod_uid=str(entry.get("uid", "")),
        container_restarts_of_pod=of_uid,
        is_pod_end_counted=entry.get("ended") is True,
        exit_code=code if isinstance(code, int) else None,
        reason=str(entry.get("reason", "")),
        ended_at=training_operator_status.decode_time(entry.get("at")),
        finished_at=training_operator_status.decode_time(entry.get("finished")),
        rejections=rejections,
        rejected_by_node=str(entry.get("refusedBy", "")),
    )


def _counts(entry: Mapping[str, Json], names: Iterable[str]) -> list[int]:
    values = [entry.get(name, 0) for name in names]
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 0 for value in values):
        raise ValueError("restart counts must be non-negative integers")
    return values
