"""An upgrade from an earlier version and the way back, under load: no pod is restarted, no status is lost.

The earlier version is the commit in TARRAGON_UPGRADE_FROM; by default one before there was a Helm chart, as no version
is tagged yet. Both versions run with today's dependencies.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tarragon.job.status_encoding import decode_status
from tarragon.kube.codec import parse_time
from tarragon.kube.meta import Key
from tests.conftest import ROOT
from tests.real.scene import TFJOBS, OperatorProcess, Scene, a_scene, connect, tfjob
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.slow]

Json = dict[str, Any]
FORMER = os.environ.get("TARRAGON_UPGRADE_FROM", "6ffe8e203fb4")
LEASE = dt.timedelta(seconds=15)
"""Its duration by default."""
REPLICAS = ("ps-0", "worker-0", "worker-1")
TRAFFIC_SECONDS = 0.5
"""Between two jobs that come while operators are replaced."""


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier version's folder."""
    folder = tmp_path_factory.mktemp("former")
    archive = folder / "former.tar"
    made = subprocess.run(
        ["git", "archive", "--output", archive, FORMER, "tarragon", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"this checkout has no commit {FORMER} to upgrade from: {made.stderr.strip()}")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("jobs", "first"),
    [
        pytest.param(20, "definitions", marks=pytest.mark.timeout(400)),
        pytest.param(1000, "definitions", marks=[pytest.mark.soak, pytest.mark.timeout(3000)]),
        pytest.param(1000, "operators", marks=[pytest.mark.soak, pytest.mark.timeout(3000)]),
    ],
)
async def test_an_upgrade_and_a_downgrade_under_load_restart_no_pod_and_lose_no_status(
    own_control_plane: ControlPlane,
    former: Path,
    record_property: Callable[[str, object], None],
    jobs: int,
    first: str,
) -> None:
    patience = 60 + jobs
    endless = [f"endless-{number}" for number in range(jobs)]
    await install(own_control_plane, former)
    async with a_scene(own_control_plane, nodes=4 + jobs // 16) as scene:
        old = [await scene.operator(None, package=former) for _ in range(2)]
        await scene.submit(endless, tfjob)
        await scene.until(lambda: all(run_all(scene, job) for job in endless), patience=patience)
        await scene.until(lambda: pods_of(endless) <= scene.uids().keys())
        pods, statuses = dict(scene.uids()), await statuses_of(scene)

        async with traffic(scene, "up", patience):
            if first == "definitions":
                await install(own_control_plane, ROOT)
            new = await replaced(scene, old, ROOT)
            if first == "operators":
                await install(own_control_plane, ROOT)
        await unharmed(scene, pods, statuses)

        async with traffic(scene, "down", patience):
            await replaced(scene, new, former)
            await install(own_control_plane, former)
        await unharmed(scene, pods, statuses)
    pauses = list(pauses_of_the_lease(own_control_plane))
    record_property("longest pause of the Lease in seconds", max(pauses).total_seconds())
    assert max(pauses) <= LEASE


async def install(plane: ControlPlane, version: Path) -> None:
    """The definition of TFJobs, as `kubectl apply` does."""
    definition = version / "deploy" / "crd-tfjobs.kubeflow.org.yaml"
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), "apply", "--server-side", "--force-conflicts"]
    process = await asyncio.create_subprocess_exec(*command, "-f", str(definition), stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def replaced(scene: Scene, running: Sequence[OperatorProcess], version: Path) -> list[OperatorProcess]:
    """As a Deployment rolls: each operator is ended once another one is ready. The first to go is the leader."""
    fresh: list[OperatorProcess] = []
    for each in running:
        one = await scene.operator(None, package=version)
        while "standing by" not in one.log and "leading" not in one.log:
            assert one.is_going, one.log
            await scene.clock.sleep(0.1)
        each.send(signal.SIGTERM)
        assert await each.ended() == 0, each.log
        fresh.append(one)
    return fresh


@asynccontextmanager
async def traffic(scene: Scene, name: str, patience: float) -> AsyncIterator[None]:
    """Short jobs keep coming, and each is seen to its end."""
    sent: list[str] = []

    async def send() -> None:
        for number in itertools.count():
            sent.append(f"{name}-{number}")
            await scene.submit(sent[-1:], lambda job: tfjob(job, seconds=0.5))
            await scene.clock.sleep(TRAFFIC_SECONDS)

    sending = asyncio.create_task(send())
    yield
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert sent
    await scene.until_states(sent, "Succeeded", patience=patience)


async def unharmed(scene: Scene, pods: dict[str, str], statuses: dict[str, Json]) -> None:
    now = scene.uids()
    assert {pod: now.get(pod) for pod in pods} == pods
    assert {pod: times for pod, times in scene.made().items() if times > 1} == {}
    found = await statuses_of(scene)
    assert {job: lost for job in statuses if (lost := list(missing(statuses[job], found[job], "status")))} == {}


def missing(before: Any, now: Any, path: str) -> Iterator[str]:
    """The paths of what was there and is not any more, or is another value."""
    if isinstance(before, dict) and isinstance(now, dict):
        for field, value in before.items():
            yield from missing(value, now.get(field), f"{path}.{field}")
    elif before != now:
        yield f"{path}: {before!r} -> {now!r}"


async def statuses_of(scene: Scene) -> dict[str, Json]:
    """Of the jobs that stay."""
    async with connect(scene.plane.kubeconfig) as http:
        found = (await http.list(TFJOBS.with_model(dict))).items
    names = {job["metadata"]["name"]: job["status"] for job in found if "status" in job}
    return {name: status for name, status in names.items() if name.startswith("endless")}


def run_all(scene: Scene, job: str) -> bool:
    """Whether the job's status says that all its replicas run. The state Running is that of a job whose first does."""
    found = scene.jobs.objects.get(Key("default", job))
    return decode_status(None if found is None else found.status).running_replicas == len(REPLICAS)


def pods_of(jobs: Sequence[str]) -> set[str]:
    return {f"{job}-{replica}" for job in jobs for replica in REPLICAS}


def pauses_of_the_lease(plane: ControlPlane) -> Iterator[dt.timedelta]:
    """Between two successful renewals, whoever's they are."""
    renewed = [
        parse_time(event["stageTimestamp"])
        for event in plane.audit_events()
        if (where := event.get("objectRef", {})).get("resource") == "leases"
        and where.get("name") == "tarragon"
        and event["verb"] in {"create", "patch", "update"}
        and event["responseStatus"]["code"] < 300
    ]
    return (after - before for before, after in itertools.pairwise(renewed))
