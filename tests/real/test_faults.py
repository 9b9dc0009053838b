from __future__ import annotations

import asyncio
import functools
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.conftest import ROOT
from tests.real.proxies import Trouble, through, troubled, wire_to
from tests.real.scene import PATIENCE, TFJOBS, Scene, a_scene, tfjob
from tools.controlplane import API_SERVER, ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

Json = dict[str, Any]
PERMISSIONS = ROOT / "deploy" / "permissions.yaml"
MANY = 240.0
"""Seconds for eighty jobs, on a machine with other things to do."""
PATIENT_LEASE = ("--lease-duration", "150", "--renew-deadline", "120")
"""A leader ends when its server is away for longer; how long one takes to come back is a matter of the machine."""
QUICK_LEASE = ("--lease-duration", "9", "--renew-deadline", "6", "--retry-period", "1")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def pods_of(jobs: Iterable[str]) -> set[str]:
    return {f"{job}-{replica}" for job in jobs for replica in ("ps-0", "worker-0", "worker-1")}


async def settled(scene: Scene, *, running: Iterable[str]) -> dict[str, str]:
    """All of them run; the uids of their pods."""
    wanted = list(running)
    await scene.until_states(wanted, "Running", patience=MANY)
    await scene.until(lambda: pods_of(wanted) <= scene.uids().keys())  # of pods another watch tells
    uids = scene.uids()
    return {pod: uids[pod] for pod in pods_of(wanted)}


async def untouched(scene: Scene, before: dict[str, str]) -> None:
    """The pods are those that were there before, and by the audit log none was ever made twice."""
    now = scene.uids()
    assert {pod: now.get(pod) for pod in before} == before
    assert {pod: times for pod, times in scene.made().items() if times > 1} == {}


async def is_at_work(scene: Scene, name: str = "afterwards") -> None:
    """A job that comes now is seen to its end."""
    await scene.submit([name], lambda job: tfjob(job, seconds=0.5))
    await scene.until_states([name], "Succeeded")


async def test_an_api_server_that_is_killed_and_comes_back_costs_no_job_anything(
    own_control_plane: ControlPlane,
) -> None:
    endless, short = names("endless", 20), names("short", 8)
    async with a_scene(own_control_plane, nodes=8) as scene:
        await scene.operator(None, *PATIENT_LEASE)
        await scene.submit(endless, tfjob)
        await scene.submit(short, lambda job: tfjob(job, seconds=10))
        before = await settled(scene, running=endless)

        own_control_plane.kill(API_SERVER)
        await scene.clock.sleep(3)
        own_control_plane.restart(API_SERVER)

        await scene.until_states(short, "Succeeded", patience=MANY)
        await is_at_work(scene)
        await scene.until_states(endless, "Running")
        await untouched(scene, before)
        assert scene.made().keys() >= pods_of(short)


async def test_an_operator_whose_history_was_compacted_away_sees_what_was_deleted_meanwhile(tmp_path: Path) -> None:
    # Without the API server's own cache every watch is etcd's, and so is what it has forgotten.
    plane = ControlPlane.start(tmp_path / "control-plane", arguments=["--watch-cache=false"])
    try:
        async with a_scene(plane) as scene:
            operator = await scene.operator(None, "--no-leader-elect")
            await scene.submit(["kept", "deleted", "robbed"], tfjob)
            before = await settled(scene, running=["kept"])
            robbed = (await settled(scene, running=["deleted", "robbed"]))["robbed-worker-1"]

            operator.send(signal.SIGSTOP)
            await scene.http.delete(TFJOBS, Key("default", "deleted"), DeleteOptions(propagation_policy="Background"))
            await scene.http.delete(PODS, Key("default", "robbed-worker-1"), DeleteOptions(grace_period_seconds=0))
            plane.kill(API_SERVER)  # its watches end, so that they have to be asked for anew
            plane.restart(API_SERVER)
            plane.compact()
            operator.send(signal.SIGCONT)

            await scene.until(lambda: scene.uids().get("robbed-worker-1", robbed) != robbed)
            await scene.until_states(["robbed"], "Running")
            await is_at_work(scene)
            assert {pod: scene.uids()[pod] for pod in before} == before
            made = scene.made()
            assert made.pop("robbed-worker-1") == 2
            assert set(made.values()) == {1}
    finally:
        plane.stop()


@pytest.mark.soak  # minutes of the usual patience; tests/client/test_real_server.py proves it with less of that
async def test_connections_that_die_without_a_word_are_noticed(emptied_control_plane: ControlPlane) -> None:
    async with a_scene(emptied_control_plane) as scene, wire_to(emptied_control_plane) as wire:
        await scene.operator(through(wire, emptied_control_plane.kubeconfig), *PATIENT_LEASE)
        await scene.submit(["before"], tfjob)
        before = await settled(scene, running=["before"])

        wire.go_silent()
        await scene.submit(["after"], lambda job: tfjob(job, seconds=0.5))

        await scene.until_states(["after"], "Succeeded", patience=300)
        await untouched(scene, before)


async def test_jobs_reach_their_end_though_a_third_of_all_calls_go_wrong(emptied_control_plane: ControlPlane) -> None:
    endless, short = names("endless", 10), names("short", 30)
    trouble = Trouble()
    async with a_scene(emptied_control_plane) as scene, troubled(emptied_control_plane, trouble) as config:
        await scene.operator(config, *PATIENT_LEASE)
        trouble.share = 0.3
        await scene.submit(endless, tfjob)
        await scene.submit(short, lambda job: tfjob(job, seconds=2))

        await scene.until_states(short, "Succeeded", patience=200)
        before = await settled(scene, running=endless)
        await untouched(scene, before)
        assert set(trouble.told) == {"429", "500", "500 although done", "late", "cut"}


async def test_when_the_leader_is_killed_the_standby_goes_on_and_no_pod_notices(
    emptied_control_plane: ControlPlane,
) -> None:
    endless, short = names("endless", 20), names("short", 10)
    async with a_scene(emptied_control_plane) as scene:
        leader = await scene.operator(None, *QUICK_LEASE)
        await scene.submit(endless, tfjob)
        before = await settled(scene, running=endless)
        await scene.operator(None, *QUICK_LEASE)
        await scene.submit(short, lambda job: tfjob(job, seconds=3))

        leader.send(signal.SIGKILL)
        await is_at_work(scene)

        await scene.until_states(short, "Succeeded", patience=MANY)
        await untouched(scene, before)


async def test_a_standby_of_the_next_version_takes_over_and_an_older_one_after_it(
    emptied_control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with a_scene(emptied_control_plane) as scene:
        old = await scene.operator(None, *QUICK_LEASE)
        await scene.submit(names("endless", 10), tfjob)
        before = await settled(scene, running=names("endless", 10))
        new = await scene.operator(None, *QUICK_LEASE, package=next_version(tmp_path))

        old.send(signal.SIGTERM)
        assert await old.ended() == 0
        await is_at_work(scene, "with-the-new")
        # What a later version may write is kept, and does not trouble an earlier one.
        future = {"status": {"tarragon": {"future": {"wings": 2}}}}
        await scene.http.patch(TFJOBS, Key("default", "endless-0"), future, subresource="status")
        await scene.operator(None, *QUICK_LEASE)
        new.send(signal.SIGTERM)
        assert await new.ended() == 0
        await is_at_work(scene, "with-the-old")

        await untouched(scene, before)
        kept = await scene.http.get(TFJOBS.with_model(dict), Key("default", "endless-0"))
        assert kept["status"]["tarragon"]["future"] == {"wings": 2}


@pytest.mark.kubectl
async def test_permissions_that_are_withdrawn_and_given_back_cost_no_job_anything(
    own_control_plane: ControlPlane,
) -> None:
    namespace = documents(ROOT / "deploy" / "namespace.yaml")
    roles = [role for role in documents(PERMISSIONS) if role["kind"] in {"ClusterRole", "Role"}]
    async with a_scene(own_control_plane) as scene:
        await kubectl(own_control_plane, "apply", "-f", "-", text=yaml.safe_dump_all(namespace + roles))
        await bind(own_control_plane, "Role")
        await bind(own_control_plane, "ClusterRole")
        await scene.operator(own_control_plane.user("tarragon"), *QUICK_LEASE, "--lease-namespace", "tarragon-system")
        await scene.submit(["before"], tfjob)
        before = await settled(scene, running=["before"])

        await unbind(own_control_plane)
        await scene.submit(["meanwhile"], tfjob)
        await refused(scene)
        await bind(own_control_plane, "ClusterRole")

        before |= await settled(scene, running=["meanwhile"])
        await is_at_work(scene)
        await untouched(scene, before)


@pytest.mark.kubectl
async def test_a_job_that_is_deleted_in_the_foreground_goes_after_its_pods_and_gets_no_new_ones(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_scene(emptied_control_plane) as scene:
        await scene.operator()
        await scene.submit(["doomed", "spared"], tfjob)
        before = await settled(scene, running=["doomed", "spared"])

        await kubectl(emptied_control_plane, "delete", "tfjob", "doomed", "--cascade=foreground", "--timeout=60s")

        assert not pods_of(["doomed"]) & {pod.metadata.name for pod in (await scene.http.list(PODS)).items}
        await is_at_work(scene)
        assert set(scene.made().values()) == {1}
        assert scene.uids()["spared-ps-0"] == before["spared-ps-0"]


def next_version(folder: Path) -> Path:
    """A copy of the package that says it is a later one; the folder to import it from."""
    copied = folder / "next"
    shutil.copytree(ROOT / "tarragon", copied / "tarragon")
    facts = copied / "tarragon" / "__init__.py"
    facts.write_text(facts.read_text().replace('__version__ = "', '__version__ = "9'))
    return copied


def documents(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


async def kubectl(plane: ControlPlane, *words: str, text: str = "") -> None:
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), *words]
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False, timeout=PATIENCE)
    done = await asyncio.to_thread(run, command, input=text)
    assert done.returncode == 0, done.stderr


async def bind(plane: ControlPlane, kind: str) -> None:
    """To the roles of that kind as they are installed, under names that the test can take away."""
    for role in [one["metadata"] for one in documents(PERMISSIONS) if one["kind"] == kind]:
        namespace = ["--namespace", role["namespace"]] if "namespace" in role else []
        user = [f"--{kind.lower()}={role['name']}", "--user=tarragon"]
        await kubectl(plane, *namespace, "create", f"{kind.lower()}binding", f"test-{role['name']}", *user)


async def unbind(plane: ControlPlane) -> None:
    """Everything but the Lease: an operator that loses that one ends, which is another story."""
    for role in [one["metadata"] for one in documents(PERMISSIONS) if one["kind"] == "ClusterRole"]:
        await kubectl(plane, "delete", "clusterrolebinding", f"test-{role['name']}")


async def refused(scene: Scene) -> None:
    """The server has said no to the operator at least once."""
    async with asyncio.timeout(PATIENCE):
        while not any(event["responseStatus"]["code"] == 403 for event in scene.plane.audit_events()):
            await scene.clock.sleep(0.2)
