"""What `kubectl get` shows of the kinds whose controllers make pods."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tarragon.kube.codec import parse_time
from tarragon.localcluster.tables.cells import NONE, Object, at, number, wide
from tarragon.localcluster.tables.table import AGE, NAME, Cell, TableColumn, duration


def _count(name: str, *path: str) -> TableColumn:
    return TableColumn(name, number(*path), type="integer")


def _ready(wanted: Sequence[str], ready: Sequence[str]) -> TableColumn:
    def cell(value: Object, _: dt.datetime) -> str:
        return f"{at(value, *ready) or 0}/{at(value, *wanted) or 0}"

    return TableColumn("Ready", cell)


def _containers(*spec: str) -> tuple[TableColumn, TableColumn]:
    def of(field: str) -> Cell:
        def cell(value: Object, _: dt.datetime) -> str:
            return ",".join(str(one.get(field) or "") for one in at(value, *spec, "containers") or ())

        return cell

    return wide("Containers", of("name")), wide("Images", of("image"))


def _selector(*path: str) -> TableColumn:
    def cell(value: Object, _: dt.datetime) -> str:
        return selector_text(at(value, *path))

    return wide("Selector", cell)


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A metav1.LabelSelector as kubectl writes it."""
    if selector is None:
        return NONE
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append((key, forms.get(expression["operator"], f"!{key}")))
    return ",".join(one for _, one in sorted(parts)) or NONE


def _job_status(job: Object, _: dt.datetime) -> str:
    true = {str(each.get("type")) for each in at(job, "status", "conditions") or () if each.get("status") == "True"}
    if at(job, "metadata", "deletionTimestamp") and not true & {"Complete", "Failed"}:
        return "Terminating"
    order = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((kind for kind in order if kind in true), "Running")


def _completions(job: Object, _: dt.datetime) -> str:
    done = at(job, "status", "succeeded") or 0
    completions, parallelism = at(job, "spec", "completions"), at(job, "spec", "parallelism") or 0
    if completions is not None:
        return f"{done}/{completions}"
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object, now: dt.datetime) -> str:
    began, ended = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if not began:
        return ""
    return duration((parse_time(ended) if ended else now) - parse_time(began))


_TEMPLATE = ("spec", "template", "spec")

WORKLOAD_COLUMNS: Mapping[str, Sequence[TableColumn]] = MappingProxyType(
    {
        "deployments.apps": (
            NAME,
            _ready(("spec", "replicas"), ("status", "readyReplicas")),
            _count("Up-to-date", "status", "updatedReplicas"),
            _count("Available", "status", "availableReplicas"),
            AGE,
            *_containers(*_TEMPLATE),
            _selector("spec", "selector"),
        ),
        "replicasets.apps": (
            NAME,
            _count("Desired", "spec", "replicas"),
            _count("Current", "status", "replicas"),
            _count("Ready", "status", "readyReplicas"),
            AGE,
            *_containers(*_TEMPLATE),
            _selector("spec", "selector"),
        ),
        "jobs.batch": (
            NAME,
            TableColumn("Status", _job_status),
            TableColumn("Completions", _completions),
            TableColumn("Duration", _job_duration),
            AGE,
            *_containers(*_TEMPLATE),
            _selector("spec", "selector"),
        ),
    }
)
