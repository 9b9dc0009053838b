"""The rules of horizontal pod autoscalers, in both of their versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.kinds.autoscaler_forms import DEFAULT_PERCENT, cpu_metric
from tarragon.localcluster.schema.field_errors import Fault, invalid_value, required

Json = dict[str, Any]


def prepare(autoscaler: Json) -> None:
    default(autoscaler, {})
    autoscaler["status"] = {"desiredReplicas": 0, "currentReplicas": 0}


def default(autoscaler: Json, _: Mapping[str, Any]) -> None:
    spec = autoscaler.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    is_old = autoscaler.get("apiVersion") == "autoscaling/v1" or "targetCPUUtilizationPercentage" in spec
    if not is_old and not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(DEFAULT_PERCENT)]


def faults(autoscaler: Mapping[str, Any]) -> Iterator[Fault]:
    spec = autoscaler["spec"]
    least, most = spec["minReplicas"], spec.get("maxReplicas", 0)
    if least < 1:
        yield invalid_value("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield invalid_value("spec.maxReplicas", most, "must be greater than 0")
    if most < least:
        yield invalid_value("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    reference = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not reference.get(field):
            yield required(f"spec.scaleTargetRef.{field}")
    if spec.get("targetCPUUtilizationPercentage", 1) < 1:
        percent = spec["targetCPUUtilizationPercentage"]
        yield invalid_value("spec.targetCPUUtilizationPercentage", percent, "must be greater than 0")
