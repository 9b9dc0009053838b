"""A real control plane on which Kubernetes' own gangs are turned on, where it has them."""

from __future__ import annotations

from pathlib import Path

from tools.controlplane import NEWEST, ControlPlane

GANGS_SINCE = 37
"""PodGroups of `scheduling.k8s.io/v1beta1`. The alpha versions before it have other fields."""


def serves_native_pod_groups() -> bool:
    return NEWEST.minor() >= GANGS_SINCE


def start_with_gangs(folder: Path) -> ControlPlane:
    if not serves_native_pod_groups():
        return ControlPlane.start(folder)
    served = ["--runtime-config=scheduling.k8s.io/v1beta1=true"]
    return ControlPlane.start(folder, arguments=served, feature_gates=["GenericWorkload"])
