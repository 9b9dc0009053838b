"""The rules of jobs and cron jobs: pods that run to their end."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.api.cron_schedule import Schedule
from tarragon.localcluster.schema import names
from tarragon.localcluster.schema.field_errors import Fault, forbidden_value, invalid_value, required, unsupported
from tarragon.localcluster.validation.templates import (
    count_faults,
    default_template,
    immutable_faults,
    selector_faults,
    template_faults,
    unmatched_faults,
)

Json = dict[str, Any]

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_LEGACY_UID_LABEL, _LEGACY_NAME_LABEL = "controller-uid", "job-name"
_POLICIES = ("OnFailure", "Never")
_BACKOFF_LIMIT = 6
_ACTIONS = ("Count", "FailJob", "Ignore")
_LONGEST_CRON_NAME = 52
_INDEXED_ONLY = "requires indexed completion mode"
_HISTORY = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}


def prepare_job(job: Json) -> None:
    """Fill in defaults, among them a selector by the job's uid unless `manualSelector` is set."""
    _default_spec(job.setdefault("spec", {}))
    _select_by_uid(job)
    _label(job)


def default_job(job: Json, _: Mapping[str, Any]) -> None:
    _default_spec(job.setdefault("spec", {}))
    _label(job)


def _label(job: Json) -> None:
    """Copy the labels of the template to a job without labels."""
    labels = job["spec"]["template"]["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def _default_spec(spec: Json) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    default_template(spec.setdefault("template", {}))


def _select_by_uid(job: Json) -> None:
    spec = job["spec"]
    if spec["manualSelector"]:
        return
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    # The two legacy labels keep the values that a client has set.
    labels.setdefault(_LEGACY_UID_LABEL, uid)
    labels.setdefault(_LEGACY_NAME_LABEL, name)
    labels[UID_LABEL] = uid
    labels.setdefault(NAME_LABEL, name)
    spec.setdefault("selector", {}).setdefault("matchLabels", {})[UID_LABEL] = uid


def job_faults(job: Mapping[str, Any]) -> Iterator[Fault]:
    spec = job["spec"]
    yield from selector_faults("spec.selector", spec.get("selector"))
    yield from unmatched_faults(spec.get("selector"), spec["template"])
    yield from _spec_faults(spec)


def _spec_faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    yield from count_faults(
        spec,
        *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
    )
    mode = spec["completionMode"]
    if mode not in {"NonIndexed", "Indexed"}:
        yield unsupported("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")
    yield from _unsupported_faults(spec)
    if spec.get("successPolicy") and mode != "Indexed":
        yield invalid_value("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode")
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif spec.get("podFailurePolicy") and policy != "Never":
        words = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid_value("spec.template.spec.restartPolicy", policy, words)
    yield from template_faults("spec.template", spec["template"], ("Always", *_POLICIES))


def _unsupported_faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Reject what the embedded job controller would ignore."""
    for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(field) is not None:
            yield forbidden_value(f"spec.{field}", "is not supported by the embedded cluster: leave it out")
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        if rule.get("action") not in _ACTIONS:
            yield unsupported(f"spec.podFailurePolicy.rules[{index}].action", rule.get("action", ""), _ACTIONS)


def job_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Fault]:
    before, after = old["spec"], new["spec"]
    if after["completionMode"] != "Indexed" or after.get("completions") != after["parallelism"]:
        yield from immutable_faults("spec.completions", after.get("completions"), before.get("completions"))
    for field in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "successPolicy"):
        yield from immutable_faults(f"spec.{field}", after.get(field), before.get(field))
    if not _may_change_template(old):
        yield from immutable_faults("spec.template", after["template"], before["template"])


def _may_change_template(job: Mapping[str, Any]) -> bool:
    """Whether the job is suspended and has never started: then a queue may still change where its pods run."""
    return bool(job["spec"]["suspend"]) and not (job.get("status") or {}).get("startTime")


def prepare_cron_job(cron_job: Json) -> None:
    default_cron_job(cron_job, {})


def default_cron_job(cron_job: Json, _: Mapping[str, Any]) -> None:
    spec = cron_job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    for field, number in _HISTORY.items():
        spec.setdefault(field, number)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    job = template.setdefault("spec", {})
    # What a job's own creation fills in is left to that; only its pods' defaults are set here, as elsewhere.
    default_template(job.setdefault("template", {}))


def cron_job_faults(cron_job: Mapping[str, Any]) -> Iterator[Fault]:
    spec = cron_job["spec"]
    yield from _schedule_faults(spec)
    yield from count_faults(spec, "startingDeadlineSeconds", *_HISTORY)
    if spec["concurrencyPolicy"] not in {"Allow", "Forbid", "Replace"}:
        yield unsupported("spec.concurrencyPolicy", spec["concurrencyPolicy"], ("Allow", "Forbid", "Replace"))
    if spec["jobTemplate"]["spec"].get("manualSelector"):
        yield unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false"))
    job = {**spec["jobTemplate"]["spec"]}
    _default_spec(job)
    for fault in _spec_faults(job):
        yield Fault(f"spec.jobTemplate.{fault.field}", fault.reason, fault.message)


def _schedule_faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        yield required("spec.schedule")
    elif "TZ" in schedule:
        words = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid_value("spec.schedule", schedule, words)
    else:
        try:
            Schedule.parse(schedule)
        except ValueError as error:
            yield invalid_value("spec.schedule", schedule, str(error))
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            yield invalid_value("spec.timeZone", zone, f"unknown time zone {zone}")


def cron_name_fault(name: str) -> str:
    """Eleven characters are added to make the names of its jobs."""
    if len(name) > _LONGEST_CRON_NAME:
        return f"must be no more than {_LONGEST_CRON_NAME} characters"
    return names.subdomain(name)
