"""HorizontalPodAutoscalers in autoscaling/v1, which `kubectl autoscale` still writes: a percentage of CPU, no other.

They are stored as v2. What v1 cannot say of one is left out of its form, and kept by nobody who writes that form.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

DEFAULT_PERCENT = 80


def shown(autoscaler: Json) -> Json:
    """As v1."""
    spec, status = {**(autoscaler.get("spec") or {})}, {**(autoscaler.get("status") or {})}
    percent = _percent(spec.pop("metrics", None), "target")
    current = _percent(status.pop("currentMetrics", None), "current")
    spec.pop("behavior", None)
    status.pop("conditions", None)
    if percent is not None:
        spec["targetCPUUtilizationPercentage"] = percent
    if current is not None:
        status["currentCPUUtilizationPercentage"] = current
    return {**autoscaler, "apiVersion": "autoscaling/v1", "spec": spec, "status": status}


def kept(autoscaler: Json) -> Json:
    """As v2."""
    spec, status = {**(autoscaler.get("spec") or {})}, {**(autoscaler.get("status") or {})}
    spec["metrics"] = [cpu_metric(spec.pop("targetCPUUtilizationPercentage", DEFAULT_PERCENT))]
    status.pop("currentCPUUtilizationPercentage", None)
    return {**autoscaler, "apiVersion": "autoscaling/v2", "spec": spec, "status": status}


def cpu_metric(percent: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _percent(metrics: list[Json] | None, part: str) -> int | None:
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        if metric.get("type") == "Resource" and resource.get("name") == "cpu":
            found = (resource.get(part) or {}).get("averageUtilization")
            return found if isinstance(found, int) else None
    return None
