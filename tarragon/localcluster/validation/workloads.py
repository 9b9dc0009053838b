"""The rules of the kinds that keep pods running: deployments and replica sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, unsupported
from tarragon.localcluster.validation.pod_templates import (
    count_faults,
    default_template,
    immutable_faults,
    int_or_percent_faults,
    selector_faults,
    selector_mismatch_faults,
    template_faults,
)

Json = dict[str, Any]

_DEFAULT_SHARE = "25%"
_HISTORY = 10
_PROGRESS_SECONDS = 600
_ALWAYS = ("Always",)


# --------------------------------------------------------------------------------------------------------- deployments


def prepare_deployment(deployment: Json) -> None:
    default_deployment(deployment, {})


def default_deployment(deployment: Json, _: Mapping[str, Any]) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    spec.setdefault("progressDeadlineSeconds", _PROGRESS_SECONDS)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", _DEFAULT_SHARE)
        rolling.setdefault("maxSurge", _DEFAULT_SHARE)
    default_template(spec.setdefault("template", {}))


def deployment_faults(deployment: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = deployment["spec"]
    yield from _kept_pods_faults(spec, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline, min_ready = spec["progressDeadlineSeconds"], spec.get("minReadySeconds") or 0
    if deadline <= min_ready:
        yield invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    yield from _strategy_faults(spec["strategy"])


def _strategy_faults(strategy: Mapping[str, Any]) -> Iterator[FieldError]:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate":
        if rolling is not None:
            words = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_value("spec.strategy.rollingUpdate", words)
    elif strategy["type"] != "RollingUpdate":
        yield unsupported("spec.strategy.type", strategy["type"], ("Recreate", "RollingUpdate"))
    else:
        yield from _rolling_faults("spec.strategy.rollingUpdate", rolling or {})


def _rolling_faults(path: str, rolling: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("maxUnavailable", "maxSurge"):
        yield from int_or_percent_faults(f"{path}.{field}", rolling.get(field))
    if all(str(rolling.get(field)) in {"0", "0%"} for field in ("maxUnavailable", "maxSurge")):
        yield invalid_value(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")


# -------------------------------------------------------------------------------------------------------- replica sets


def prepare_replica_set(replica_set: Json) -> None:
    default_replica_set(replica_set, {})
    replica_set["status"] = {"replicas": 0}


def default_replica_set(replica_set: Json, _: Mapping[str, Any]) -> None:
    spec = replica_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec.setdefault("template", {}))


def replica_set_faults(replica_set: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _kept_pods_faults(replica_set["spec"], "replicas", "minReadySeconds")


def selector_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from immutable_faults("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))


def _kept_pods_faults(spec: Mapping[str, Any], *counts: str) -> Iterator[FieldError]:
    yield from count_faults(spec, *counts)
    yield from selector_faults("spec.selector", spec.get("selector"))
    yield from selector_mismatch_faults(spec.get("selector"), spec["template"])
    yield from template_faults("spec.template", spec["template"], _ALWAYS)
