"""Encodes and decodes the restart records of a job. Equal records share one entry, to keep large jobs small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tarragon.job import classic
from tarragon.job.indexes import by_type, replicas
from tarragon.job.model import Replica
from tarragon.job.status import RestartRecord
from tarragon.kube.codec import timestamp
from tarragon.kube.meta import Json

MOST_DETAILS = 500
"""Only this many replicas, those that ended last, keep all details. The others keep their counts."""


def restart_fields(records: Mapping[Replica, RestartRecord]) -> dict[str, Json]:
    """Encode the records. `total` is for the printer column and includes disruptions."""
    groups: dict[RestartRecord, list[Replica]] = {}
    for replica, record in sorted(_trimmed(records).items()):
        groups.setdefault(record, []).append(replica)
    fields: dict[str, Json] = {"total": sum(record.total for record in records.values())}
    if groups:
        fields["replicas"] = [{"of": by_type(members), **_record_fields(record)} for record, members in groups.items()]
    return fields


def read_restarts(found: Json) -> dict[Replica, RestartRecord]:
    """Decode what `restart_fields` wrote. Raises ValueError, TypeError, KeyError or AttributeError otherwise."""
    return {
        replica: _read_record(entry) for entry in found.get("replicas", []) for replica in sorted(replicas(entry["of"]))
    }


def _trimmed(records: Mapping[Replica, RestartRecord]) -> Mapping[Replica, RestartRecord]:
    if len(records) <= MOST_DETAILS:
        return records
    latest = set(sorted(records, key=lambda replica: records[replica].at or classic.NEVER)[-MOST_DETAILS:])
    return {
        replica: record if replica in latest else replace(record, exit_code=None, reason="", at=None, refused_by="")
        for replica, record in records.items()
    }


def _record_fields(record: RestartRecord) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "count": record.count,
        "disruptions": record.disruptions,
        "inPlace": record.in_place,
        "uid": record.uid,
        "inPlaceOfUid": record.in_place_of_uid,
        "ended": record.has_ended,
        "reason": record.reason,
        "refusedBy": record.refused_by,
    }
    nonempty = {name: value for name, value in fields.items() if value}
    if record.exit_code is not None:
        nonempty["exitCode"] = record.exit_code
    if record.at is not None:
        nonempty["at"] = timestamp(record.at)
    return nonempty


def _read_record(entry: Mapping[str, Json]) -> RestartRecord:
    count, disruptions, in_place, of_uid = _counts(entry, ("count", "disruptions", "inPlace", "inPlaceOfUid"))
    code = entry.get("exitCode")
    return RestartRecord(
        count=count,
        disruptions=disruptions,
        in_place=in_place,
        uid=str(entry.get("uid", "")),
        in_place_of_uid=of_uid,
        has_ended=entry.get("ended") is True,
        exit_code=code if isinstance(code, int) else None,
        reason=str(entry.get("reason", "")),
        at=classic.time(entry.get("at")),
        refused_by=str(entry.get("refusedBy", "")),
    )


def _counts(entry: Mapping[str, Json], names: Iterable[str]) -> list[int]:
    values = [entry.get(name, 0) for name in names]
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 0 for value in values):
        raise ValueError("restart counts must be non-negative integers")
    return values
