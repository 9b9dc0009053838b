"""The chart of a sweep on a real control plane: helm makes nine jobs, the operator starts as many as have room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarragon.kube.core import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.conftest import ROOT
from tests.helm.conftest import Helm
from tests.real.environment import TFJOBS, OperatorEnvironment, an_environment
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.helm, pytest.mark.timeout(180)]

CHART = ROOT / "tests" / "data" / "manifests" / "003-sweep-chart"
JOBS = [f"kubeflow-tf-mnist-{rate}-{layers}" for rate in range(3) for layers in range(3)]
AT_ONCE = 3


async def a_claim(env: OperatorEnvironment) -> None:
    """The one that the chart mounts, bound."""
    how = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    path = {"hostPath": {"path": "/nowhere"}, "capacity": {"storage": "1Gi"}}
    await env.create(PERSISTENT_VOLUMES, env.name("azurefile"), spec={**how, **path})
    wanted = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": env.name("azurefile")}
    await env.create(PERSISTENT_VOLUME_CLAIMS, "azurefile", spec={**how, **wanted})


def running(env: OperatorEnvironment) -> list[str]:
    return [name for name, pod in env.pods.items() if pod["status"].get("phase") == "Running"]


def succeeded(env: OperatorEnvironment) -> int:
    return sum(env.phase(job) == "Succeeded" for job in JOBS)


async def end_those_that_run(env: OperatorEnvironment, done: int) -> None:
    """When so many jobs are done and the next ones run."""
    await env.until(lambda: (succeeded(env), len(running(env))) == (done, AT_ONCE))
    for pod in running(env):
        await env.ends(pod)


async def test_nine_jobs_of_a_chart_run_three_at_a_time_and_once_each(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with an_environment(control_plane, "sweep") as env:
        variables = {"HOME": str(tmp_path), "KUBECONFIG": str(control_plane.kubeconfig), "PATH": os.environ["PATH"]}
        helm = Helm(env.http, env.namespace, variables)
        await env.node("n", pods=str(AT_ONCE))
        await a_claim(env)
        env.start_operator()

        await helm("install", "sweep", str(CHART))
        for done in range(0, len(JOBS), AT_ONCE):
            await end_those_that_run(env, done)
        await env.until(lambda: succeeded(env) == len(JOBS))
        await helm("upgrade", "sweep", str(CHART), "--set", "image=another")

        assert env.made() == {f"{job}-master-0": 1 for job in JOBS}
        await helm("uninstall", "sweep")
        await env.until_gone(TFJOBS, JOBS[0])
