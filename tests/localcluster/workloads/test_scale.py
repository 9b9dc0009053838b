from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.localcluster.controllers.workloads import scaling_plan
from tarragon.localcluster.controllers.workloads.model import AUTOSCALERS, DEPLOYMENTS
from tarragon.localcluster.controllers.workloads.part import WorkloadControllers
from tarragon.localcluster.controllers.workloads.scaling_plan import Load
from tarragon.localcluster.kinds import autoscaler_forms
from tests.localcluster.controllers.world import a_world

CPU = autoscaler_forms.cpu_metric(50)


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        ([500, 500], 2),  # as it is to be
        ([540, 540], 2),  # near enough
        ([1000, 1000], 4),
        ([100, 100], 1),
        ([0, 0], 0),
        ([600, 600, 600], 4),
    ],
)
def test_replicas_follow_what_pods_use_of_what_they_ask_for(used: list[int], wanted: int) -> None:
    reading = scaling_plan.read(CPU, [Load(used=each, asked=1000) for each in used], len(used))

    assert reading.replicas == wanted
    assert not reading.trouble


def test_an_average_needs_no_request() -> None:
    target = {"type": "AverageValue", "averageValue": "200m"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}

    assert scaling_plan.read(metric, [Load(used=600, asked=0)], 1).replicas == 3


def test_what_cannot_be_read_is_told() -> None:
    assert "no metrics" in scaling_plan.read(CPU, [], 2).trouble
    assert "missing request for cpu" in scaling_plan.read(CPU, [Load(used=5, asked=0)], 1).trouble


def test_the_first_version_says_a_percentage_and_comes_back_as_it_was() -> None:
    spec = {"maxReplicas": 4, "minReplicas": 1, "targetCPUUtilizationPercentage": 50}
    kept = autoscaler_forms.kept({"metadata": {"name": "web"}, "spec": spec, "status": {}})

    assert kept["spec"]["metrics"] == [CPU]
    assert autoscaler_forms.shown(kept)["spec"] == spec


async def test_an_autoscaler_without_measurements_says_so_and_changes_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        for kind in (AUTOSCALERS, DEPLOYMENTS):
            await world.follow(kind)
        world.start(WorkloadControllers(world.client, SystemClock(), world.jitter))
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
        spec: Any = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await world.create(DEPLOYMENTS, "web", spec=spec)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        await world.create(AUTOSCALERS, "web", spec={"maxReplicas": 5, "scaleTargetRef": target})

        def told() -> list[tuple[str, str, str]]:
            status = world.objects["horizontalpodautoscalers/default/web"].get("status") or {}
            return [(each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()]

        await world.until(lambda: ("ScalingActive", "False", "FailedGetResourceMetric") in told())
        assert world.objects["deployments/default/web"]["spec"]["replicas"] == 2
