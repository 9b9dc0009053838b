"""What keeps the local cluster awake once nobody works with it any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarragon.cli.jobview.outlived_jobs import outlives_its_job
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.cli.conftest import Shell
from tests.cli.manifests import command, job
from tests.cli.manifests import group as replicas
from tests.operator.stage import TFJOBS, Stage, a_stage, group

UP_UNTIL_TOLD = """
import sys
from pathlib import Path
from tarragon.cli.entry import main
from tarragon.localcluster.daemon import serving

told, until_idle = Path("told").absolute(), serving.until_idle

async def until_told_and_idle(activity, clock, seconds):
    while not told.exists():
        await clock.sleep(0.05)
    await until_idle(activity, clock, 0.5)

serving.until_idle = until_told_and_idle
sys.argv[0] = "tarragon"
main()
"""
"""A server whose idle timeout is short, and begins with a file: on a busy machine clients take their time to come."""


async def left_over(stage: Stage, pod: str) -> bool:
    return await outlives_its_job(stage.world.client, await stage.world.client.get(PODS, Key("default", pod)))


async def test_a_pod_is_left_over_once_its_job_has_ended(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("here")
        stage.start_operator()
        await stage.submit("digits", Chief=group(1), Worker=group(1))
        await stage.until_pods("digits-chief-0", "digits-worker-0")
        await stage.all_run("digits-chief-0", "digits-worker-0")
        was_left_over = await left_over(stage, "digits-worker-0")

        await stage.plays("digits-chief-0", "Succeeded", 0)
        await stage.until_state("digits", "Succeeded")

        assert not was_left_over
        assert await left_over(stage, "digits-worker-0")


async def test_the_tensorboard_of_an_ended_job_is_not_left_over(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("here")
        stage.start_operator()
        await stage.submit("digits", Worker=group(1))
        note = {"metadata": {"annotations": {"tarragon.dev/tensorboard": "/models"}}}
        await stage.world.client.patch(TFJOBS, Key("default", "digits"), note)
        await stage.until_pods("digits-worker-0", "digits-tensorboard")
        await stage.plays("digits-worker-0", "Succeeded", 0)
        await stage.until_state("digits", "Succeeded")

        assert not await left_over(stage, "digits-tensorboard")


@pytest.mark.timeout(120)
def test_an_idle_cluster_stops_with_what_an_ended_job_left_running(shell: Shell) -> None:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", UP_UNTIL_TOLD, "up", "--stop-when-idle"],
        cwd=shell.folder,
        env=shell.environment(),
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    with server:
        server.stdout.readline()
        up = command("sh", "-c", "trap 'touch down; exit' TERM; touch up; while :; do sleep 0.05; done")
        once_up = command("sh", "-c", "until [ -e up ]; do sleep 0.02; done")
        training = job("digits", PS=replicas(up), Worker=replicas(once_up))
        submitted = shell("submit", shell.file("job.yaml", training), "--wait")

        assert submitted.code == 0
        assert not (shell.folder / "down").exists()
        shell.file("told", "")
        assert server.wait() == 0
        assert (shell.folder / "down").exists()
