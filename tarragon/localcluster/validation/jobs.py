"""The rules of jobs: pods that run to their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, required, unsupported
from tarragon.localcluster.validation.pod_templates import (
    count_faults,
    default_template,
    immutable_faults,
    selector_faults,
    selector_mismatch_faults,
    template_faults,
)

Json = dict[str, Any]

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_LEGACY_UID_LABEL, _LEGACY_NAME_LABEL = "controller-uid", "job-name"
_POLICIES = ("OnFailure", "Never")
_BACKOFF_LIMIT = 6
_ACTIONS = ("Count", "FailJob", "Ignore")


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


def job_faults(job: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = job["spec"]
    yield from selector_faults("spec.selector", spec.get("selector"))
    yield from selector_mismatch_faults(spec.get("selector"), spec["template"])
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


def _unsupported_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Reject what the embedded job controller would ignore."""
    for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(field) is not None:
            yield forbidden_value(f"spec.{field}", "is not supported by the embedded cluster: leave it out")
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        if rule.get("action") not in _ACTIONS:
            yield unsupported(f"spec.podFailurePolicy.rules[{index}].action", rule.get("action", ""), _ACTIONS)


def job_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
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
