"""The documents of `-o json` and `-o yaml` that are not Kubernetes objects: docs/reference/cli-output.md.

Scripts read them: within a version, fields may be added, but none is removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from tarragon.cli.jobview.jobs import ClusterJob
    from tarragon.cli.options.config_keys import Setting
    from tarragon.cli.output.finding import Finding
    from tarragon.job.progress import Progress
    from tarragon.kube.meta import Json, JsonObject

API_VERSION = "cli.tarragon.dev/v1"


def document(kind: str, fields: Mapping[str, Json]) -> JsonObject:
    """Returns a document of that kind. Fields that are None are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    return {"apiVersion": API_VERSION, "kind": kind, **known}


def check_document(findings: Iterable[Finding]) -> JsonObject:
    found = [_finding(each) for each in findings]
    return document("Check", {"canTrain": all(each["level"] != "error" for each in found), "findings": found})


def _finding(found: Finding) -> dict[str, Json]:
    return {"level": found.level, "topic": found.topic, "text": found.text, "remedy": found.remedy}


def validation_document(files: Iterable[Mapping[str, Json]]) -> JsonObject:
    found = list(files)
    return document("Validation", {"isValid": not any(each["problems"] for each in found), "files": found})


def job_document(known: ClusterJob, now: dt.datetime, lines: Iterable[str]) -> JsonObject:
    """Returns the document of `describe` and `why`. `lines` is their text output."""
    from tarragon.cli.jobview.rows import current_size, ready, reason, restarts, training
    from tarragon.kube.codec import format_time

    status = known.status
    failure = status.first_failure
    first = failure and {
        "replica": str(failure.replica),
        "exitCode": failure.exit_code,
        "reason": failure.reason,
        "message": failure.message,
    }
    facts: dict[str, Json] = {
        "name": known.key.name,
        "namespace": known.key.namespace,
        "job": known.name,
        "uid": known.uid,
        "jobApiVersion": known.object.api_version,
        "jobKind": known.framework.kind,
        "generation": known.dialect.name if known.dialect is not None else None,
        "state": known.state,
        "reason": reason(known) or None,
        "progress": _progress(status.progress, training(known, now)),
        "ready": ready(known),
        "replicas": {kind.lower(): number for kind, number in current_size(known).items()},
        "wished": {kind.lower(): number for kind, number in known.requested.items()},
        "restarts": restarts(known),
        "created": format_time(known.created) if known.created is not None else None,
        "ageSeconds": round((now - known.created).total_seconds()) if known.created is not None else None,
        "conditions": [
            {"type": each.type, "status": each.is_true, "reason": each.reason, "message": each.message}
            for each in status.conditions
        ],
        "firstFailure": first,
        "warnings": [str(warning) for warning in known.warnings],
        "text": list(lines),
    }
    return document("Job", facts)


def _progress(found: Progress | None, text: str) -> dict[str, Json] | None:
    if found is None:
        return None
    fields = {
        "done": found.done,
        "total": found.total,
        "unit": found.unit.value,
        "loss": found.loss or None,
        "isOfEarlierPod": found.is_of_earlier_pod,
        "text": text,
    }
    return {name: value for name, value in fields.items() if value is not None}


def config_document(path: Path, found: Iterable[Setting]) -> JsonObject:
    settings = [{"key": each.key, "value": each.value, "origin": each.origin} for each in found]
    return document("Config", {"path": str(path), "settings": settings})
